/* In: views over the axes of a result. Out: row steps with as few axes as possible. See nest.h.
 *
 * Fewer axes mean longer rows and fewer evaluations of strides by the runtime, and equal layers whose shapes differ
 * only in their leading axes then share one kernel, because a kernel depends on how columns are reached and on nothing
 * else. */
#include "plan/nest.h"

#include <string.h>

#include "base/check.h"
#include "plan/cost.h"

// ---- operands ----

/* Aligns the view at the last axis, as broadcasting does: a missing axis and an axis of 1 get stride 0, so that one
 * element serves the whole axis. */
NestOperand nest_operand_of(Planner *p, const Nest *nest, const View *view) {
  CHECK(view->rank <= nest->rank, "an operand with more axes than the loops over it");
  NestOperand operand = {
      .space = view->space, .dtype = view->dtype, .form = view->form, .index = view->index, .offset = view->offset};
  for (uint32_t i = 0; i < nest->rank; i++) {
    operand.strides[i] = p->math.zero;
    uint32_t missing = nest->rank - view->rank;
    if (i < missing || size_equals(nest->dims[i], 1) || size_equals(view->dims[i - missing], 1)) continue;
    operand.strides[i] = view->strides[i - missing];
  }
  return operand;
}

static bool same_operand(const Nest *nest, const NestOperand *a, const NestOperand *b) {
  return a->space == b->space && a->dtype == b->dtype && a->index == b->index && a->size == b->size &&
         a->offset == b->offset && a->ids == b->ids && a->table_stride == b->table_stride &&
         memcmp(a->strides, b->strides, nest->rank * sizeof *a->strides) == 0;
}

/* Equal operands are one: kernels have few of them (TFM_MAX_OPERANDS), and an expression often names an input twice. */
uint32_t nest_add_operand(Nest *nest, const NestOperand *operand) {
  for (uint32_t i = 1; i < nest->n_operands; i++)
    if (same_operand(nest, &nest->operands[i], operand)) return i;
  CHECK(nest->n_operands < TFM_MAX_OPERANDS, "a row kernel with too many operands");
  nest->operands[nest->n_operands] = *operand;
  return nest->n_operands++;
}

uint32_t nest_add(Planner *p, Nest *nest, const View *view) {
  NestOperand operand = nest_operand_of(p, nest, view);
  return nest_add_operand(nest, &operand);
}

void nest_add_other(Planner *p, Nest *nest, const View *view) {
  CHECK(nest->n_others < NEST_MAX_OTHERS, "too many operands beside the row kernel's");
  nest->others[nest->n_others++] = nest_operand_of(p, nest, view);
}

void nest_begin(Planner *p, Nest *nest, uint32_t rank, const Size *const *dims, const View *result) {
  *nest = (Nest){.rank = rank, .n_operands = 1};
  memcpy(nest->dims, dims, rank * sizeof *dims);
  nest->operands[0] = nest_operand_of(p, nest, result);
}

// ---- axes ----

/* Marks the axes whose coordinate the expression reads. */
static void find_indexed(Planner *p, const Nest *nest, bool indexed[MAX_RANK]) {
  ExprList list = expr_list(p->arena, nest->expr);
  for (uint32_t i = 0; i < list.n; i++)
    if (list.items[i]->kind == EXPR_INDEX) indexed[nest->rank - 1 - list.items[i]->axis] = true;
}

/* Renumbers the coordinates in the expression. Coordinates count axes from the last one; that of a dropped axis, which
 * had one element, is 0. */
static void rename_indexes(Planner *p, Nest *nest, const uint32_t *positions) {
  ExprList list = expr_list(p->arena, nest->expr);
  Expr **copies = ARENA_ARRAY(p->arena, Expr *, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    Expr *copy = copies[i] = arena_copy(p->arena, list.items[i], sizeof **list.items);
    for (uint32_t j = 0; j < copy->n_args; j++) copy->args[j] = copies[list.args[j][i]];
    if (copy->kind != EXPR_INDEX) continue;
    uint32_t position = positions[nest->rank - 1 - copy->axis];
    copies[i] = position ? expr_index(p->arena, position - 1) : expr_integer(p->arena, DTYPE_I32, 0);
  }
  nest->expr = copies[list.n - 1];
}

static NestOperand *operand_at(Nest *nest, uint32_t i) {
  return i < nest->n_operands ? &nest->operands[i] : &nest->others[i - nest->n_operands];
}

/* The axes become old[0] ... old[n - 1]. Strides and coordinates follow. */
static void select_axes(Planner *p, Nest *nest, uint32_t n, const uint32_t *old) {
  uint32_t positions[MAX_RANK] = {0};
  for (uint32_t i = 0; i < n; i++) positions[old[i]] = n - i;
  rename_indexes(p, nest, positions);
  for (uint32_t k = 0; k < nest->n_operands + nest->n_others; k++) {
    NestOperand *operand = operand_at(nest, k);
    const Size *strides[MAX_RANK];
    for (uint32_t i = 0; i < n; i++) strides[i] = operand->strides[old[i]];
    memcpy(operand->strides, strides, n * sizeof *strides);
  }
  const Size *dims[MAX_RANK];
  for (uint32_t i = 0; i < n; i++) dims[i] = nest->dims[old[i]];
  memcpy(nest->dims, dims, n * sizeof *dims);
  nest->rank = n;
}

void nest_move_axis(Planner *p, Nest *nest, uint32_t axis, uint32_t from_last) {
  uint32_t old[MAX_RANK], n = 0, at = nest->rank - from_last;
  for (uint32_t i = 0; i < nest->rank; i++) {
    if (n == at) old[n++] = axis;
    if (i != axis) old[n++] = i;
  }
  if (n < nest->rank) old[n++] = axis;
  select_axes(p, nest, n, old);
}

static void drop_ones(Planner *p, Nest *nest, uint32_t fixed) {
  uint32_t old[MAX_RANK], n = 0;
  for (uint32_t i = 0; i < nest->rank; i++)
    if (i + fixed >= nest->rank || !size_equals(nest->dims[i], 1)) old[n++] = i;
  if (n < nest->rank) select_axes(p, nest, n, old);
}

/* Whether for every operand a step along axis i continues where axis i + 1 ends, so that one axis can stand for
 * both. */
static bool can_merge(Planner *p, Nest *nest, uint32_t i) {
  for (uint32_t k = 0; k < nest->n_operands + nest->n_others; k++) {
    const NestOperand *operand = operand_at(nest, k);
    if (operand->strides[i] != math_mul(&p->math, operand->strides[i + 1], nest->dims[i + 1])) return false;
  }
  return true;
}

/* Columns are the axis that a row kernel vectorises. Rows are merged into them only where a row is too short to be
 * worth beginning (cost.c); otherwise rows stay rows, because threads share those. */
static bool columns_are_short(const Nest *nest) {
  int64_t columns;
  return size_is_const(nest->dims[nest->rank - 1], &columns) && cost_columns_are_short(columns);
}

/* Merges from the last axis forward. Axes whose coordinate the expression reads must stay apart: a merged coordinate
 * could not be taken apart again without a division per element. */
static void merge_axes(Planner *p, Nest *nest, uint32_t apart) {
  bool indexed[MAX_RANK] = {false};
  find_indexed(p, nest, indexed);
  uint32_t i = nest->rank;
  while (i-- > 1) {
    if (i + apart >= nest->rank || indexed[i] || indexed[i - 1] || !can_merge(p, nest, i - 1)) continue;
    if (i == nest->rank - 1 && !columns_are_short(nest)) continue;
    uint32_t old[MAX_RANK], n = 0;
    const Size *dim = math_mul(&p->math, nest->dims[i - 1], nest->dims[i]);
    for (uint32_t j = 0; j < nest->rank; j++)
      if (j != i - 1) old[n++] = j;
    for (uint32_t j = i - 1; j + 1 < nest->rank; j++) indexed[j] = indexed[j + 1];
    nest->dims[i] = dim;
    select_axes(p, nest, n, old);
  }
}

void nest_add_axis(Planner *p, Nest *nest) {
  CHECK(nest->rank < MAX_RANK, "a nest of too many axes");
  for (uint32_t k = 0; k < nest->n_operands + nest->n_others; k++) {
    NestOperand *operand = operand_at(nest, k);
    memmove(operand->strides + 1, operand->strides, nest->rank * sizeof *operand->strides);
    operand->strides[0] = p->math.zero;
  }
  memmove(nest->dims + 1, nest->dims, nest->rank * sizeof *nest->dims);
  nest->dims[0] = p->math.one;
  nest->rank++;
}

/* Row kernels walk rows and columns, so a nest of fewer axes gets axes of 1 in front. */
static void widen(Planner *p, Nest *nest) {
  while (nest->rank < 2) {
    for (uint32_t k = 0; k < nest->n_operands + nest->n_others; k++) {
      NestOperand *operand = operand_at(nest, k);
      operand->strides[1] = operand->strides[0];
      operand->strides[0] = p->math.zero;
      if (!operand->strides[1]) operand->strides[1] = p->math.zero;
    }
    nest->dims[1] = nest->rank ? nest->dims[0] : p->math.one;
    nest->dims[0] = p->math.one;
    nest->rank++;
  }
}

void nest_simplify(Planner *p, Nest *nest, uint32_t fixed, uint32_t apart) {
  drop_ones(p, nest, fixed);
  merge_axes(p, nest, apart);
  widen(p, nest);
}

// ---- kernels, operands and steps ----

/* The only property of strides that generated code depends on: 1 is a vector load, 0 a broadcast, anything else a load
 * per element. */
static ColumnAccess access_of(const Nest *nest, const NestOperand *operand) {
  const Size *stride = operand->strides[nest->rank - 1];
  if (size_equals(stride, 0)) return COLUMN_BROADCAST;
  return size_equals(stride, 1) ? COLUMN_CONTIGUOUS : COLUMN_STRIDED;
}

KernelSpec nest_spec(const Nest *nest) {
  KernelSpec spec = {.family = KERNEL_ROW, .reduction = OP_POINTWISE, .n_operands = (uint8_t)nest->n_operands,
                     .expr = nest->expr};
  for (uint32_t i = 0; i < nest->n_operands; i++) {
    spec.operands[i] = (RowOperandSpec){.dtype = nest->operands[i].dtype,
                                        .form = nest->operands[i].form,
                                        .access = access_of(nest, &nest->operands[i]),
                                        .gathered = (uint8_t)nest->operands[i].ids};
  }
  if (spec.operands[0].access == COLUMN_BROADCAST) spec.operands[0].access = COLUMN_CONTIGUOUS; /* one column */
  return spec;
}

static bool has_sums(OpKind reduction) {
  return reduction != OP_MAX && reduction != OP_MIN && reduction != OP_ARGMAX && reduction != OP_POINTWISE;
}

void nest_reduces(KernelSpec *spec, OpKind reduction, uint8_t reduce, const Size *length) {
  int64_t n;
  spec->reduction = reduction;
  spec->reduce = reduce;
  if (!has_sums(reduction)) spec->lines = LINES_SHORT;
  else if (!size_is_const(length, &n)) spec->lines = LINES_OF_ANY_LENGTH;
  else spec->lines = n > TFM_ROW_CHAIN ? LINES_LONG : LINES_SHORT;
}

/* Whether squares of the operand can be transposed, if `rows` are the rows. */
static bool is_transposed(const Nest *nest, const NestOperand *operand, uint32_t rows) {
  const Size *stride = operand->strides[nest->rank - 1];
  bool is_apart = !size_equals(stride, 0) && !size_equals(stride, 1);
  return is_apart && size_equals(operand->strides[rows], 1) && dtype_bytes[operand->dtype] == 4;
}

static uint32_t count_transposed(const Nest *nest, uint32_t rows) {
  uint32_t n = 0;
  for (uint32_t i = 1; i < nest->n_operands; i++) n += is_transposed(nest, &nest->operands[i], rows);
  return n;
}

/* The columns become those of the result, and the rows the axis along which most of the operands lie that have none
 * there. Rows that a mask or ids choose stay. */
static void turn(Planner *p, Nest *nest) {
  const NestOperand *result = &nest->operands[0];
  uint32_t columns = nest->rank - 1;
  while (columns > 0 && !size_equals(result->strides[columns], 1)) columns--;
  if (size_equals(result->strides[columns], 1)) nest_move_axis(p, nest, columns, 1);
  uint32_t rows = nest->rank - 2;
  for (uint32_t i = nest->rank - 1; i-- > 0;)
    if (count_transposed(nest, i) > count_transposed(nest, rows)) rows = i;
  nest_move_axis(p, nest, rows, 2);
}

KernelSpec nest_pointwise(Planner *p, Nest *nest) {
  bool is_fixed = nest->live;
  for (uint32_t i = 0; i < nest->n_operands; i++) is_fixed |= nest->operands[i].ids != 0;
  if (!is_fixed) turn(p, nest);
  KernelSpec spec = nest_spec(nest);
  for (uint32_t i = 1; i < nest->n_operands && !is_fixed; i++)
    if (is_transposed(nest, &nest->operands[i], nest->rank - 2)) spec.operands[i].access = COLUMN_TRANSPOSED;
  return spec;
}

/* The stride of a table along the rows is what one id is worth, because the kernel multiplies it by the id it loads. */
tfm_operand nest_operand(Planner *p, const Nest *nest, const NestOperand *operand) {
  tfm_operand result = {.space = operand->space,
                        .dtype = (uint8_t)operand->dtype,
                        .index = operand->index,
                        .gathered = (uint8_t)operand->ids,
                        .form = operand->form,
                        .offset = plan_size(p, operand->offset)};
  if (operand->space == TFM_SPACE_SIZE) result.index = plan_size(p, operand->size);
  for (uint32_t i = 0; i < nest->rank; i++) result.strides[i] = plan_size(p, operand->strides[i]);
  if (operand->ids) result.strides[nest->rank - 2] = plan_size(p, operand->table_stride);
  plan_use(p, operand->space, operand->index);
  return result;
}

uint32_t nest_operands(Planner *p, const Nest *nest) {
  uint32_t first = (uint32_t)p->operands.n;
  for (uint32_t i = 0; i < nest->n_operands; i++)
    vec_push(p->arena, &p->operands, nest_operand(p, nest, &nest->operands[i]));
  return first;
}

void nest_dims(Planner *p, const Nest *nest, tfm_size *dims) {
  for (uint32_t i = 0; i < nest->rank; i++) dims[i] = plan_size(p, nest->dims[i]);
}

void plan_row_step(Planner *p, Nest *nest, const KernelSpec *spec, const char *operation) {
  tfm_row_step step = {.kernel = plan_kernel(p, spec),
                       .rank = (uint8_t)nest->rank,
                       .reduce = spec->reduce,
                       .n_operands = (uint8_t)nest->n_operands,
                       .second = spec->second,
                       .first_operand = nest_operands(p, nest),
                       .live = nest->live};
  nest_dims(p, nest, step.dims);
  vec_push(p->arena, &p->rows, step);
  plan_step(p, TFM_STEP_ROW, p->rows.n - 1, cost_rows(p, nest), operation);
}

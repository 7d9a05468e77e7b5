/* In: views over the axes of a result. Out: row steps with as few axes as possible. See nest.h.
 *
 * Fewer axes mean longer rows and fewer evaluations of strides by the runtime, and equal layers whose shapes differ
 * only in their leading axes then share one kernel, because a kernel depends on how columns are reached and on nothing
 * else. */
#include "plan/nest.h"

#include <string.h>

#include "base/check.h"
#include "plan/cost_layout.h"

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

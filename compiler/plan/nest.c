#include "plan/nest.h"

#include <string.h>

#include "base/check.h"
#include "plan/caches.h"
#include "plan/cost.h"

// ---- operands ----

Body body_new(const Node *node, uint32_t rank, const Size *const *dims, const Expr *expr) {
  Body body = {.node = node, .rank = rank, .expr = expr};
  memcpy(body.dims, dims, rank * sizeof *dims);
  return body;
}

/* The view's strides over the nest's axes, aligned at the last; 0 where one element serves the whole axis. */
static NestOperand operand_of(Planner *p, const Nest *nest, const View *view) {
  CHECK(view->rank <= nest->rank, "an operand with more axes than the loops over it");
  NestOperand operand = {.space = view->space, .dtype = view->dtype, .index = view->index, .offset = view->offset};
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

static uint32_t add(Nest *nest, const NestOperand *operand) {
  for (uint32_t i = 1; i < nest->n_operands; i++)
    if (same_operand(nest, &nest->operands[i], operand)) return i;
  CHECK(nest->n_operands < TFM_MAX_OPERANDS, "a row kernel with too many operands");
  nest->operands[nest->n_operands] = *operand;
  return nest->n_operands++;
}

uint32_t nest_add(Planner *p, Nest *nest, const View *view) {
  NestOperand operand = operand_of(p, nest, view);
  return add(nest, &operand);
}

void nest_add_other(Planner *p, Nest *nest, const View *view) {
  CHECK(nest->n_others < NEST_MAX_OTHERS, "too many operands beside the row kernel's");
  nest->others[nest->n_others++] = operand_of(p, nest, view);
}

static uint32_t add_size(Planner *p, Nest *nest, const Expr *expr) {
  NestOperand operand = {.space = TFM_SPACE_SIZE, .dtype = expr->dtype, .size = expr->size, .offset = p->math.zero};
  for (uint32_t i = 0; i < nest->rank; i++) operand.strides[i] = p->math.zero;
  return add(nest, &operand);
}

static View input_view(Planner *p, const Body *body, uint32_t input) {
  uint32_t n = (uint32_t)body->node->inputs.n;
  return input < n ? plan_view(p, body->node->inputs.items[input]) : body->parts.items[input - n];
}

/* Rows of a table: ids are one per row of the nest, the table's columns are the nest's. */
static void add_gather(Planner *p, Nest *nest, const Body *body, Expr *expr) {
  View ids = input_view(p, body, expr->ids), table = input_view(p, body, expr->input);
  ids.dims[ids.rank] = p->math.one;
  ids.strides[ids.rank++] = p->math.zero;
  expr->ids = nest_add(p, nest, &ids);
  View row = {
      .space = table.space, .dtype = table.dtype, .index = table.index, .rank = table.rank - 1, .offset = table.offset};
  memcpy(row.dims, table.dims + 1, row.rank * sizeof *row.dims);
  memcpy(row.strides, table.strides + 1, row.rank * sizeof *row.strides);
  NestOperand operand = operand_of(p, nest, &row);
  operand.ids = expr->ids;
  operand.table_stride = table.strides[0];
  expr->input = add(nest, &operand);
}

/* The body's expression over the operands of the nest. */
static Expr *lower(Planner *p, Nest *nest, const Body *body) {
  ExprList list = expr_list(p->arena, body->expr);
  Expr **copies = ARENA_ARRAY(p->arena, Expr *, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    Expr *copy = copies[i] = arena_copy(p->arena, list.items[i], sizeof **list.items);
    for (uint32_t j = 0; j < copy->n_args; j++) copy->args[j] = copies[list.args[j][i]];
    if (copy->kind == EXPR_GATHER) add_gather(p, nest, body, copy);
    View view;
    if (copy->kind == EXPR_INPUT) view = input_view(p, body, copy->input);
    else if (copy->kind == EXPR_ACC && body->acc) view = *body->acc;
    else if (copy->kind == EXPR_SIZE) {
      copies[i] = expr_input(p->arena, copy->dtype, add_size(p, nest, copy));
      continue;
    } else continue;
    copies[i] = expr_input(p->arena, view.dtype, nest_add(p, nest, &view));
  }
  return copies[list.n - 1];
}

void nest_init(Planner *p, Nest *nest, const Body *body, const View *result) {
  memset(nest, 0, sizeof *nest);
  nest->rank = body->rank;
  memcpy(nest->dims, body->dims, sizeof nest->dims);
  nest->operands[0] = operand_of(p, nest, result);
  nest->n_operands = 1;
  nest->expr = lower(p, nest, body);
}

// ---- axes ----

typedef struct Axes {
  uint32_t n;
  uint32_t from[MAX_RANK]; /* the last of the old axes that became this one */
  bool indexed[MAX_RANK];  /* old axes whose coordinate the expression reads */
} Axes;

static void find_indexed(Planner *p, const Nest *nest, Axes *axes) {
  ExprList list = expr_list(p->arena, nest->expr);
  for (uint32_t i = 0; i < list.n; i++)
    if (list.items[i]->kind == EXPR_INDEX) axes->indexed[nest->rank - 1 - list.items[i]->axis] = true;
}

/* The coordinates renumbered; those of dropped axes are 0. */
static void rename_indexes(Planner *p, Nest *nest, const uint32_t *places) {
  ExprList list = expr_list(p->arena, nest->expr);
  Expr **copies = ARENA_ARRAY(p->arena, Expr *, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    Expr *copy = copies[i] = arena_copy(p->arena, list.items[i], sizeof **list.items);
    for (uint32_t j = 0; j < copy->n_args; j++) copy->args[j] = copies[list.args[j][i]];
    if (copy->kind != EXPR_INDEX) continue;
    uint32_t place = places[nest->rank - 1 - copy->axis];
    copies[i] = place ? expr_index(p->arena, place - 1) : expr_integer(p->arena, DTYPE_I32, 0);
  }
  nest->expr = copies[list.n - 1];
}

static NestOperand *operand_at(Nest *nest, uint32_t i) {
  return i < nest->n_operands ? &nest->operands[i] : &nest->others[i - nest->n_operands];
}

/* The axes become `old[0]` ... `old[n - 1]`. Coordinates in the expression count axes from the last one and follow. */
static void select_axes(Planner *p, Nest *nest, uint32_t n, const uint32_t *old) {
  uint32_t places[MAX_RANK] = {0};
  for (uint32_t i = 0; i < n; i++) places[old[i]] = n - i;
  rename_indexes(p, nest, places);
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

void nest_move_axis(Planner *p, Nest *nest, uint32_t axis, uint32_t place) {
  uint32_t old[MAX_RANK], n = 0, at = nest->rank - place;
  for (uint32_t i = 0; i < nest->rank; i++) {
    if (n == at) old[n++] = axis;
    if (i != axis) old[n++] = i;
  }
  if (n < nest->rank) old[n++] = axis;
  select_axes(p, nest, n, old);
}

static void drop_ones(Planner *p, Nest *nest, uint32_t kept) {
  uint32_t old[MAX_RANK], n = 0;
  for (uint32_t i = 0; i < nest->rank; i++)
    if (i + kept >= nest->rank || !size_equals(nest->dims[i], 1)) old[n++] = i;
  if (n < nest->rank) select_axes(p, nest, n, old);
}

/* Whether for every operand a step along axis i continues where axis i + 1 ends. */
static bool can_merge(Planner *p, Nest *nest, uint32_t i) {
  for (uint32_t k = 0; k < nest->n_operands + nest->n_others; k++) {
    const NestOperand *operand = operand_at(nest, k);
    if (operand->strides[i] != math_mul(&p->math, operand->strides[i + 1], nest->dims[i + 1])) return false;
  }
  return true;
}

static bool columns_are_short(const Nest *nest) {
  int64_t columns;
  return size_is_const(nest->dims[nest->rank - 1], &columns) && cost_columns_are_short(columns);
}

static void merge_axes(Planner *p, Nest *nest, uint32_t apart) {
  Axes axes = {0};
  find_indexed(p, nest, &axes);
  uint32_t i = nest->rank;
  while (i-- > 1) {
    if (i + apart >= nest->rank || axes.indexed[i] || axes.indexed[i - 1] || !can_merge(p, nest, i - 1)) continue;
    if (i == nest->rank - 1 && !columns_are_short(nest)) continue;
    uint32_t old[MAX_RANK], n = 0;
    const Size *dim = math_mul(&p->math, nest->dims[i - 1], nest->dims[i]);
    for (uint32_t j = 0; j < nest->rank; j++)
      if (j != i - 1) old[n++] = j;
    for (uint32_t j = i - 1; j + 1 < nest->rank; j++) axes.indexed[j] = axes.indexed[j + 1];
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

void nest_simplify(Planner *p, Nest *nest, uint32_t kept, uint32_t apart) {
  drop_ones(p, nest, kept);
  merge_axes(p, nest, apart);
  widen(p, nest);
}

// ---- live rows ----

/* The rows that a step leaves out become 0 if another step reads them: one that does not leave out the same rows, even
 * if it only selects another value instead. Attention reads all keys and values up to the last one that is seen. */

static const Node *mask_itself(const Node *mask) {
  while (mask->op == OP_RESHAPE) mask = mask->inputs.items[0];
  return mask;
}

static bool skips_same_rows(const Planner *p, const Node *node, const Node *user) {
  const Node *mask = node_rows_mask(user);
  return mask && mask_itself(mask) == mask_itself(node_rows_mask(node)) &&
         user->attr.rows_where == node->attr.rows_where && !(user->op == OP_ATTENTION && caches_serve(p, user));
}

/* Whether the user reads rows of its input `i` that the node leaves out. */
static bool reads_all_rows(const Planner *p, const Node *node, const Node *user, size_t i) {
  return (user->op == OP_ATTENTION && (i == 1 || i == 2)) || !skips_same_rows(p, node, user);
}

/* `value`: the node, or a view of it. */
static bool others_are_read(const Planner *p, const Node *node, const Node *value) {
  for (size_t i = 0; i < value->users.n; i++) {
    const Node *user = value->users.items[i];
    if (!p->values[user->id].is_live) continue;
    if (op_table[user->op].category == CATEGORY_VIEW && others_are_read(p, node, user)) return true;
    if (op_table[user->op].category == CATEGORY_VIEW) continue;
    for (size_t j = 0; j < user->inputs.n; j++)
      if (user->inputs.items[j] == value && reads_all_rows(p, node, user, j)) return true;
  }
  return false;
}

static bool has_no_gaps(Planner *p, const View *view) {
  const Size *expected = p->math.one;
  for (uint32_t i = view->rank; i-- > 0;) {
    if (size_equals(view->dims[i], 1)) continue;
    if (view->strides[i] != expected) return false;
    expected = math_mul(&p->math, expected, view->dims[i]);
  }
  return true;
}

static bool has_all_rows(const Node *node, const View *mask) {
  if (mask->rank + 1 != node->rank) return false;
  for (uint32_t i = 0; i < mask->rank; i++)
    if (mask->dims[i] != node->dims[i]) return false;
  return true;
}

static bool same_mask(const tfm_operand *a, const tfm_operand *b) {
  bool same = a->space == b->space && a->dtype == b->dtype && a->gathered == b->gathered && a->index == b->index &&
              a->offset == b->offset;
  for (int axis = 0; axis < TFM_MAX_RANK; axis++) same &= a->strides[axis] == b->strides[axis];
  return same;
}

uint32_t live_by_operand(Planner *p, const Node *node, const tfm_operand *mask) {
  const tfm_live_rows wanted = {.where = node->attr.rows_where,
                                  .zeroed = node->attr.rows_zero || others_are_read(p, node, node),
                                  .mask = *mask};
  for (size_t i = 0; i < p->live.n; i++) {
    const tfm_live_rows *known = &p->live.items[i];
    if (known->where == wanted.where && known->zeroed == wanted.zeroed && same_mask(&known->mask, mask))
      return (uint32_t)i + 1;
  }
  vec_push(p->arena, &p->live, wanted);
  return (uint32_t)p->live.n;
}

uint32_t live_rows(Planner *p, const Node *node) {
  const Node *mask = node_rows_mask(node);
  if (!mask) return 0;
  View view = plan_view(p, mask);
  if (!has_all_rows(node, &view) || !has_no_gaps(p, &view)) return 0;
  tfm_operand operand = plan_operand(p, &view);
  return live_by_operand(p, node, &operand);
}

bool live_queries(Planner *p, const Node *attention, View *mask) {
  const Node *node = node_rows_mask(attention);
  if (!node || caches_serve(p, attention)) return false;
  *mask = plan_view(p, node);
  if (mask->rank + 1 != attention->rank) return false;
  mask->dims[mask->rank] = p->math.one;
  mask->strides[mask->rank++] = p->math.zero;
  return true;
}

// ---- kernels, operands and steps ----

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
                                        .access = access_of(nest, &nest->operands[i]),
                                        .gathered = (uint8_t)nest->operands[i].ids};
  }
  if (spec.operands[0].access == COLUMN_BROADCAST) spec.operands[0].access = COLUMN_CONTIGUOUS; /* one column */
  return spec;
}

tfm_operand nest_operand(Planner *p, const Nest *nest, const NestOperand *operand) {
  tfm_operand result = {.space = operand->space, .dtype = (uint8_t)operand->dtype, .index = operand->index,
                        .gathered = (uint8_t)operand->ids, .offset = plan_size(p, operand->offset)};
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
                       .first_operand = nest_operands(p, nest)};
  if (nest->rows_of) step.live = live_rows(p, nest->rows_of);
  nest_dims(p, nest, step.dims);
  vec_push(p->arena, &p->rows, step);
  plan_step(p, TFM_STEP_ROW, p->rows.n - 1, cost_rows(p, nest), operation);
}

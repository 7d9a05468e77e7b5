/* In: POINTWISE, REDUCE, NORM, CONCAT, SINUSOID, ROTARY_TABLE, and the outputs of the graph. Out: row steps, append
 * steps, table steps. Expressions with more operands than a kernel takes are split first: parts of them are computed
 * into buffers. Refused: nothing; a part with too many operands of its own is the caller's to report. */
#include <string.h>

#include "base/check.h"
#include "plan/caches.h"
#include "plan/cost.h"
#include "plan/nest.h"

// ---- the operands of an expression ----

/* For every subexpression, the set of operands that it needs, as one byte per operand of the root. */
typedef struct Needs {
  ExprList list;
  uint32_t n; /* different operands */
  uint8_t **sets;
  bool *has_acc;
} Needs;

static uint32_t number_of(Map *numbers, char kind, const void *key, size_t size) {
  char bytes[32];
  bytes[0] = kind;
  memcpy(bytes + 1, key, size);
  MapEntry *entry = map_find(numbers, bytes, size + 1);
  if (!entry) entry = map_put_n(numbers, bytes, size + 1, (void *)(uintptr_t)numbers->n);
  return (uint32_t)(uintptr_t)entry->value;
}

/* The operands of a leaf: at most two. */
static uint32_t leaf_operands(Map *numbers, const Expr *expr, uint32_t *operands) {
  switch (expr->kind) {
    case EXPR_INPUT: operands[0] = number_of(numbers, 'i', &expr->input, sizeof expr->input); return 1;
    case EXPR_SIZE: {
      struct { const Size *size; uint64_t dtype; } key = {expr->size, expr->dtype};
      operands[0] = number_of(numbers, 's', &key, sizeof key);
      return 1;
    }
    case EXPR_GATHER: {
      uint32_t key[2] = {expr->input, expr->ids};
      operands[0] = number_of(numbers, 't', key, sizeof key);
      operands[1] = number_of(numbers, 'r', &expr->ids, sizeof expr->ids);
      return 2;
    }
    default: return 0;
  }
}

static Needs needs_of(Arena *scratch, const Expr *root, bool acc_is_operand) {
  Needs needs = {.list = expr_list(scratch, root)};
  Map numbers = map_new(scratch);
  uint32_t acc = 0;
  needs.sets = ARENA_ARRAY(scratch, uint8_t *, needs.list.n);
  needs.has_acc = ARENA_ARRAY(scratch, bool, needs.list.n);
  for (uint32_t i = 0; i < needs.list.n; i++) {
    const Expr *expr = needs.list.items[i];
    uint8_t *set = needs.sets[i] = arena_alloc(scratch, 2 * (size_t)needs.list.n + 1);
    uint32_t operands[2];
    for (uint32_t n = leaf_operands(&numbers, expr, operands); n-- > 0;) set[operands[n]] = 1;
    if (expr->kind == EXPR_ACC && acc_is_operand) set[number_of(&numbers, 'a', &acc, sizeof acc)] = 1;
    needs.has_acc[i] = expr->kind == EXPR_ACC && !acc_is_operand;
    for (uint32_t j = 0; j < expr->n_args; j++) {
      uint32_t arg = needs.list.args[j][i];
      for (size_t k = 0; k < numbers.n; k++) set[k] |= needs.sets[arg][k];
      needs.has_acc[i] |= needs.has_acc[arg];
    }
  }
  needs.n = (uint32_t)numbers.n;
  return needs;
}

static uint32_t count(const Needs *needs, uint32_t item) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < needs->n; k++) n += needs->sets[item][k];
  return n;
}

uint32_t body_operands(const Body *body) {
  Arena *scratch = arena_create();
  Needs needs = needs_of(scratch, body->expr, body->acc != NULL);
  uint32_t n = count(&needs, needs.list.n - 1);
  arena_destroy(scratch);
  return n;
}

bool expr_has_kind(Planner *p, const Expr *expr, ExprKind kind) {
  ExprList list = expr_list(p->arena, expr);
  for (uint32_t i = 0; i < list.n; i++)
    if (list.items[i]->kind == kind) return true;
  return false;
}

// ---- splitting an expression ----

/* The subexpression with the most operands that one kernel can take; NULL if there is none. */
static const Expr *largest_part(const Needs *needs, uint32_t limit) {
  const Expr *best = NULL;
  uint32_t most = 1;
  for (uint32_t i = 0; i + 1 < needs->list.n; i++) {
    uint32_t n = count(needs, i);
    if (needs->has_acc[i] || n <= most || n > limit) continue;
    most = n;
    best = needs->list.items[i];
  }
  return best;
}

/* A copy of `root` in which `part` is replaced by `by`. */
static Expr *substitute(Planner *p, const Expr *root, const Expr *part, Expr *by) {
  ExprList list = expr_list(p->arena, root);
  Expr **copies = ARENA_ARRAY(p->arena, Expr *, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    if (list.items[i] == part) {
      copies[i] = by;
      continue;
    }
    copies[i] = arena_copy(p->arena, list.items[i], sizeof **list.items);
    for (uint32_t j = 0; j < copies[i]->n_args; j++) copies[i]->args[j] = copies[list.args[j][i]];
  }
  return copies[list.n - 1];
}

/* Computes `part` into a buffer, and lets the body read that instead. */
static void compute_part(Planner *p, Body *body, const Expr *part) {
  View place = place_new(p, part->dtype, body->rank, body->dims);
  Body before = *body;
  before.expr = part;
  Nest nest;
  nest_init(p, &nest, &before, &place);
  uint32_t fixed = expr_has_kind(p, part, EXPR_GATHER);
  nest_simplify(p, &nest, fixed, fixed);
  KernelSpec spec = nest_spec(&nest);
  plan_row_step(p, &nest, &spec, "pointwise");
  uint32_t input = (uint32_t)(body->node->inputs.n + body->parts.n);
  vec_push(p->arena, &body->parts, place);
  body->expr = substitute(p, body->expr, part, expr_input(p->arena, part->dtype, input));
}

bool body_split(Planner *p, Body *body, uint32_t limit) {
  while (body_operands(body) > limit) {
    Arena *scratch = arena_create();
    Needs needs = needs_of(scratch, body->expr, body->acc != NULL);
    const Expr *part = largest_part(&needs, limit);
    arena_destroy(scratch);
    if (!part) return false;
    compute_part(p, body, part);
  }
  return true;
}

void body_split_gathers(Planner *p, Body *body) {
  for (;;) {
    ExprList list = expr_list(p->arena, body->expr);
    uint32_t i = 0;
    while (i < list.n && list.items[i]->kind != EXPR_GATHER) i++;
    if (i == list.n) return;
    compute_part(p, body, list.items[i]);
  }
}

// ---- pointwise ----

static const Size *const *dims_of(const Node *node) { return (const Size *const *)node->dims; }

/* How many of the last axes must stay as they are: a gather needs its columns. */
static uint32_t fixed_axes(Planner *p, const Body *body) { return expr_has_kind(p, body->expr, EXPR_GATHER); }

void plan_body(Planner *p, const Node *node, Body *body) {
  body_split(p, body, TFM_MAX_OPERANDS - 1);
  View result = place_result(p, node, layout_has_columns, NULL, NULL);
  Nest nest;
  nest_init(p, &nest, body, &result);
  if (node->op == OP_POINTWISE && node->attr.rows_mask) nest.rows_of = node;
  uint32_t fixed = nest.rows_of ? 1 : fixed_axes(p, body);
  nest_simplify(p, &nest, fixed, fixed);
  KernelSpec spec = nest_spec(&nest);
  plan_row_step(p, &nest, &spec, "pointwise");
}

void plan_pointwise(Planner *p, const Node *node) {
  Body body = body_new(node, node->rank, dims_of(node), node->attr.expr);
  plan_check_gathers(p, node);
  plan_body(p, node, &body);
}

// ---- reductions ----

static bool writes_rows(OpKind reduction) { return reduction == OP_SOFTMAX || reduction == OP_LOG_SOFTMAX; }

/* The result with an axis of 1 in the place of the reduced one, so that it has the axes of the domain. */
static View over_domain(Planner *p, const Node *node, const View *result) {
  View view = *result;
  if (writes_rows(node->attr.reduction) || node->attr.keepdim) return view;
  uint32_t axis = (uint32_t)node->attr.axis;
  for (uint32_t i = view.rank; i > axis; i--) {
    view.dims[i] = view.dims[i - 1];
    view.strides[i] = view.strides[i - 1];
  }
  view.dims[axis] = p->math.one;
  view.strides[axis] = p->math.zero;
  view.rank++;
  return view;
}

/* A gather needs its columns; if another axis is reduced, the gather is computed before. */
static void free_columns(Planner *p, Body *body, uint32_t axis) {
  if (axis + 1 != body->rank) body_split_gathers(p, body);
}

static bool only_ones_follow(const Body *body, uint32_t axis) {
  for (uint32_t i = axis + 1; i < body->rank; i++)
    if (!size_equals(body->dims[i], 1)) return false;
  return true;
}

/* The reduced axis becomes the columns, or the rows if the columns lie side by side. Returns `reduce`. */
static uint8_t arrange(Planner *p, Nest *nest, const Body *body, uint32_t axis, OpKind reduction) {
  if (axis + 1 == body->rank) {
    nest_simplify(p, nest, 1, 1);
    return 1;
  }
  if (only_ones_follow(body, axis) || writes_rows(reduction) || reduction == OP_ARGMAX) {
    nest_move_axis(p, nest, axis, 1);
    nest_simplify(p, nest, 1, 1);
    return 1;
  }
  nest_move_axis(p, nest, axis, 2);
  nest_simplify(p, nest, 2, 2);
  return 2;
}

void plan_reduce(Planner *p, const Node *node) {
  OpKind reduction = node->attr.reduction;
  uint32_t axis = (uint32_t)node->attr.axis;
  Body body = body_new(node, node->attr.rank_in, (const Size *const *)node->attr.dims_in, node->attr.expr);
  plan_check_gathers(p, node);
  free_columns(p, &body, axis);
  body_split(p, &body, TFM_MAX_OPERANDS - 1);
  View result = place_result(p, node, layout_has_columns, NULL, NULL);
  View over = over_domain(p, node, &result);
  Nest nest;
  nest_init(p, &nest, &body, &over);
  uint8_t reduce = arrange(p, &nest, &body, axis, reduction);
  KernelSpec spec = nest_spec(&nest);
  spec.reduction = reduction;
  spec.reduce = reduce;
  if (reduce == 1 && !writes_rows(reduction)) spec.operands[0].access = COLUMN_BROADCAST;
  plan_row_step(p, &nest, &spec, op_table[reduction].name);
}

void plan_norm(Planner *p, const Node *node) {
  uint32_t n_weights = (uint32_t)node->attr.has_weight + node->attr.has_bias;
  Node *const *weights = node->inputs.items + node->inputs.n - n_weights;
  Body body = body_new(node, node->rank, dims_of(node), node->attr.expr);
  plan_check_gathers(p, node);
  body_split(p, &body, TFM_MAX_OPERANDS - 1 - n_weights);
  View result = place_result(p, node, layout_has_columns, NULL, NULL);
  Nest nest;
  nest_init(p, &nest, &body, &result);
  uint32_t numbers[2] = {0};
  for (uint32_t i = 0; i < n_weights; i++) {
    View view = plan_view(p, weights[i]);
    numbers[i] = nest_add(p, &nest, &view);
  }
  nest_simplify(p, &nest, 1, 1);
  nest.rows_of = node;
  KernelSpec spec = nest_spec(&nest);
  spec.reduction = node->attr.reduction;
  spec.reduce = 1;
  spec.eps = node->attr.eps;
  if (node->attr.has_weight) spec.weight = (uint8_t)numbers[0];
  if (node->attr.has_bias) spec.bias = (uint8_t)numbers[node->attr.has_weight];
  plan_row_step(p, &nest, &spec, op_table[spec.reduction].name);
}

// ---- concat and outputs ----

void plan_concat(Planner *p, const Node *node) {
  if (caches_has(p, node)) {
    caches_append(p, node);
    return;
  }
  View whole = place_result(p, node, layout_has_columns, NULL, NULL);
  const Size *starts[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++) starts[i] = p->math.zero;
  for (size_t i = 0; i < node->inputs.n; i++) {
    const Node *input = node->inputs.items[i];
    View part = view_slice(&p->math, &whole, starts, dims_of(input)), view = plan_view(p, input);
    if (!view_equal(&part, &view)) plan_copy(p, &view, &part, "concat");
    starts[node->attr.axis] = math_add(&p->math, starts[node->attr.axis], input->dims[node->attr.axis]);
  }
}

void plan_outputs(Planner *p) {
  p->prepare = false;
  for (size_t i = 0; i < p->outputs.n; i++) {
    const Node *node = p->node = p->outputs.items[i].node;
    View from = plan_view(p, node);
    View to = view_rows(&p->math, node->dtype, node->rank, dims_of(node), NULL, NULL);
    to.space = TFM_SPACE_OUTPUT;
    to.index = (uint32_t)i;
    if (!view_equal(&from, &to)) plan_copy(p, &from, &to, "output");
  }
}

// ---- tables of sines and cosines ----

/* Whether cosines and sines lie one behind the other in a row. */
static bool has_pairs(Planner *p, const View *view) {
  (void)p;
  uint32_t last = view->rank - 1;
  return view_has_contiguous_columns(view) && view->strides[last - 1] == view->dims[last];
}

void plan_table(Planner *p, const Node *node) {
  bool rotary = node->op == OP_ROTARY_TABLE;
  const Size *elements;
  View rows = view_rows(&p->math, DTYPE_F32, node->rank, (const Size *const *)node->dims, NULL, &elements);
  View c = place_result(p, node, rotary ? has_pairs : layout_has_columns, rotary ? &rows : NULL, elements);
  View positions = plan_view(p, node->inputs.items[0]);
  tfm_table_step step = {.rotary = rotary, .interleaved = node->attr.interleaved, .rank = (uint8_t)positions.rank,
                         .base = node->attr.base, .positions = plan_operand(p, &positions), .c = plan_operand(p, &c)};
  CHECK(size_is_const(node->dims[node->rank - 1], &step.d), "a table of no static width");
  if (rotary) step.d *= 2;
  for (uint32_t i = 0; i < positions.rank; i++) {
    step.dims[i] = plan_size(p, positions.dims[i]);
    step.positions.strides[i] = plan_size(p, positions.strides[i]);
    step.c.strides[i] = plan_size(p, c.strides[i]);
  }
  if (!step.rank) {
    step.rank = 1;
    step.dims[0] = plan_size(p, p->math.one);
  }
  vec_push(p->arena, &p->tables, step);
  const Size *count = math_product(&p->math, node->rank, (const Size *const *)node->dims);
  plan_step(p, TFM_STEP_TABLE, p->tables.n - 1, cost_table(p, count), op_table[node->op].name);
}

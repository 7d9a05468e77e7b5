/* In: bodies. Out: nests, and row steps for parts of bodies. See body.h. */
#include "plan/body.h"

#include <string.h>

#include "plan/cost_layout.h"
#include "plan/nest.h"

Body body_new(const Node *node, uint32_t rank, const Size *const *dims, const Expr *expr) {
  Body body = {.node = node, .rank = rank, .expr = expr};
  memcpy(body.dims, dims, rank * sizeof *dims);
  return body;
}

// ---- from a body to a nest ----

/* A size that only a run knows reaches the kernel as an operand with stride 0, read from the runtime's table of
 * sizes. */
static uint32_t add_size(Planner *p, Nest *nest, const Expr *expr) {
  NestOperand operand = {.space = TFM_SPACE_SIZE, .dtype = expr->dtype, .size = expr->size, .offset = p->math.zero};
  for (uint32_t i = 0; i < nest->rank; i++) operand.strides[i] = p->math.zero;
  return nest_add_operand(nest, &operand);
}

/* Whether the value is one row whose columns lie apart, such as a tap of a convolution's weights, and is read again in
 * each of many rows: then to bring it together once is cheaper. */
static bool is_scattered_row(Planner *p, const Body *body, const Node *node, const View *view, int64_t *columns) {
  if (body->rank < 2 || view->rank == 0 || view->dtype != DTYPE_F32 || p->prepare) return false;
  if (p->values[node->id].is_prepare || view_has_contiguous_columns(view)) return false;
  if (size_equals(view->strides[view->rank - 1], 0)) return false;
  return size_is_const(view->dims[view->rank - 1], columns) && !cost_columns_are_short(*columns) &&
         size_equals(math_product(&p->math, view->rank - 1, view->dims), 1) &&
         !size_equals(math_product(&p->math, body->rank - 1, body->dims), 1);
}

/* Numbers behind the node's own inputs are the parts that body_split computed. */
static View input_view(Planner *p, const Body *body, uint32_t input) {
  const uint32_t n = (uint32_t)body->node->inputs.n;
  if (input >= n) return body->parts.items[input - n];
  const Node *node = body->node->inputs.items[input];
  const View view = plan_view(p, node);
  int64_t columns;
  return is_scattered_row(p, body, node, &view, &columns) ? plan_compact(p, node, true, columns) : view;
}

/* A gather reads rows of a table: the ids are one per row of the nest, and the table's columns are the nest's columns.
 * Of a table of one column the rows may become columns, with an id for each (body_fixed_axes). */
static void add_gather(Planner *p, Nest *nest, const Body *body, Expr *expr) {
  const bool is_input = expr->input < body->node->inputs.n;
  View ids = input_view(p, body, expr->ids);
  View table = is_input ? plan_gathered(p, body->node->inputs.items[expr->input]) : input_view(p, body, expr->input);
  ids.dims[ids.rank] = p->math.one;
  ids.strides[ids.rank++] = p->math.zero;
  expr->ids = nest_add(p, nest, &ids);
  View row = {.space = table.space,
              .dtype = table.dtype,
              .form = table.form,
              .index = table.index,
              .rank = table.rank - 1,
              .offset = table.offset};
  memcpy(row.dims, table.dims + 1, row.rank * sizeof *row.dims);
  memcpy(row.strides, table.strides + 1, row.rank * sizeof *row.strides);
  NestOperand operand = nest_operand_of(p, nest, &row);
  operand.ids = expr->ids;
  operand.table_stride = table.strides[0];
  expr->input = nest_add_operand(nest, &operand);
}

/* Rows of a packed table are unpacked by a step of their own. */
static bool is_looked_up(Planner *p, const Body *body, const Expr *expr, View *rows) {
  if (expr->input >= body->node->inputs.n) return false;
  const Node *table = body->node->inputs.items[expr->input];
  if (!plan_is_packed(p, table)) return false;
  const View ids = input_view(p, body, expr->ids);
  *rows = plan_look_up(p, table, &ids);
  return true;
}

/* Rewrites the expression over the operands of the nest. Expressions are shared between nodes, so it copies them. The
 * list has arguments before their users, so every argument has been rewritten when its user is. */
static Expr *lower(Planner *p, Nest *nest, const Body *body) {
  ExprList list = expr_list(p->arena, body->expr);
  Expr **copies = ARENA_ARRAY(p->arena, Expr *, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    Expr *copy = copies[i] = arena_copy(p->arena, list.items[i], sizeof **list.items);
    for (uint32_t j = 0; j < copy->n_args; j++) copy->args[j] = copies[list.args[j][i]];
    View view;
    if (copy->kind == EXPR_GATHER && is_looked_up(p, body, copy, &view)) {
      copies[i] = expr_input(p->arena, view.dtype, nest_add(p, nest, &view));
      continue;
    }
    if (copy->kind == EXPR_GATHER) add_gather(p, nest, body, copy);
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
  nest_begin(p, nest, body->rank, body->dims, result);
  nest->expr = lower(p, nest, body);
}

// ---- the operands of an expression ----

/* For every subexpression, the set of operands that it needs, one byte per operand. Sets are needed and not counts,
 * because two arguments may share an operand. */
typedef struct Needs {
  ExprList list;
  uint32_t n; /* different operands */
  uint8_t **sets;
  bool *has_acc;
} Needs;

/* Numbers a key, in order of first use. The key begins with the kind, so that an input and a size of equal bytes
 * differ. */
static uint32_t number_of(Map *numbers, char kind, const void *key, size_t size) {
  char bytes[32];
  bytes[0] = kind;
  memcpy(bytes + 1, key, size);
  MapEntry *entry = map_find(numbers, bytes, size + 1);
  if (!entry) entry = map_put_n(numbers, bytes, size + 1, (void *)(uintptr_t)numbers->n);
  return (uint32_t)(uintptr_t)entry->value;
}

/* Lists the operands of a leaf. A gather has two: the table and the ids. */
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

/* Returns the subexpression with the most operands that one kernel can take: computing it first removes the most
 * operands from the rest with a single pass over memory. A part with one operand would only copy it, and a part with
 * ACC cannot exist before the product it belongs to. NULL if there is none. */
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

/* Returns a copy of `root` in which `by` stands for `part`. */
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

uint32_t body_fixed_axes(Planner *p, const Body *body) {
  return expr_has_kind(p, body->expr, EXPR_GATHER) && body->rank > 0 && !size_equals(body->dims[body->rank - 1], 1);
}

/* Adds a step that computes `part` into a buffer, and lets the body read the buffer instead. */
static void compute_part(Planner *p, Body *body, const Expr *part) {
  View result = layout_new(p, part->dtype, body->rank, body->dims);
  Body before = *body;
  before.expr = part;
  Nest nest;
  nest_init(p, &nest, &before, &result);
  uint32_t fixed = body_fixed_axes(p, &before);
  nest_simplify(p, &nest, fixed, fixed);
  KernelSpec spec = nest_pointwise(p, &nest);
  plan_row_step(p, &nest, &spec, "pointwise");
  uint32_t input = (uint32_t)(body->node->inputs.n + body->parts.n);
  vec_push(p->arena, &body->parts, result);
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


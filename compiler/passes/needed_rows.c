/* Needed rows: rows of a batch that a mask takes out before anybody looks at them are not computed.
 *
 *   %4 = linear %0, %w : [b, t, 8]                         %4 = linear %0, %w, %m, rows=$2 : [b, t, 8]
 *   %5 = norm %4, ... : [b, t, 8]                    ->    %5 = norm %4, %m, ..., rows=$1 : [b, t, 8]
 *   %6 = pointwise %m1, %5, { where($0, $1, 0.0) }         %6 = pointwise %m1, %5, { where($0, $1, 0.0) }
 *
 * Legal: nobody looks at the other rows. Who looks where:
 *   1. outputs of the model everywhere; where(m, x, y) at x only where m is, at y only where it is not;
 *   2. products with weights, norms, pointwise work and views at the rows of their operands that are needed of theirs;
 *   3. attention at keys and values only where no mask that is the same for all queries makes their score -inf
 *      (a finite fill leaves a weight, which may count), at queries that are needed of its result;
 *   4. several users at the rows that one of them needs: of conjunctions of masks, what they have in common;
 *   5. ids are all looked at, and what can fail does so for all rows, as before.
 * A product or pointwise work that ends in where(m, y, 0.0) leaves rows out too, and is 0 there: rows=$2 else 0.
 * A weight of 0 takes nothing from its value, be it infinite or none (decisions/0002-bits.md), so what is not computed
 * cannot be seen in a result. The sum of m * x is no selection: 0 times infinity would be seen.
 * Pays: sentences of different lengths, padded to the longest, cost what their real tokens do. */
#include "passes/needed_rows.h"

#include <math.h>
#include <string.h>

#include "passes/match.h"

typedef struct MaskView { /* a mask with the axes of 1 that a node's rows need */
  const Node *mask;
  Node *view;
} MaskView;

typedef struct NeededRows {
  Pass *pass;
  RowNeed *needs;  /* by id */
  bool *has_input; /* by id: depends on an input of the model */
  VEC(MaskView) views;
} NeededRows;

// ---- analysis ----

static void find_needs(NeededRows *r) {
  const Graph *graph = r->pass->graph;
  for (size_t i = 0; i < graph->outputs.n; i++) r->needs[graph->outputs.items[i].node->id] = NEEDED_EVERYWHERE;
  for (const Node *node = graph->last; node; node = node->prev) {
    RowNeed *operands = ARENA_ARRAY(r->pass->scratch, RowNeed, node->inputs.n);
    if (expr_can_fail(r->pass->scratch, node->attr.expr)) r->needs[node->id] = NEEDED_EVERYWHERE;
    need_of_operands(r->pass, node, &r->needs[node->id], operands);
    for (size_t i = 0; i < node->inputs.n; i++) {
      RowNeed *of = &r->needs[node->inputs.items[i]->id];
      *of = need_join(of, &operands[i]);
    }
  }
}

static void find_inputs(NeededRows *r) {
  for (const Node *node = r->pass->graph->first; node; node = node->next) {
    r->has_input[node->id] = node->op == OP_INPUT;
    for (size_t i = 0; i < node->inputs.n; i++) r->has_input[node->id] |= r->has_input[node->inputs.items[i]->id];
  }
}

// ---- what becomes of it ----

/* The mask's shape over the rows of the node: all axes but the last, 1 where the mask is the same. False: it has other
 * axes, or rows have one element, which are not worth it. */
static bool shape_of_rows(const Node *node, const RowMask *mask, const Size **dims, const Size *one) {
  uint32_t rank = node->rank - 1u, at = 0;
  if (dim_is_one(node->dims[rank])) return false;
  for (uint32_t i = 0; i < rank; i++) dims[i] = one;
  for (uint32_t i = 0; i < mask->n_axes; i++) {
    uint32_t axis = mask->axes[i];
    while (at < mask->node->rank && dim_is_one(mask->node->dims[at])) at++;
    bool in_order = axis < rank && (i == 0 || axis > mask->axes[i - 1]);
    if (!in_order || mask->node->dims[at] != node->dims[axis]) return false;
    dims[axis] = node->dims[axis];
    at++;
  }
  return true;
}

/* Attention skips queries of a head, whatever the other axes; the others skip rows, so the mask must say it of each. */
static bool names_all_rows(const Node *node, const Size *const *dims) {
  if (node->op == OP_ATTENTION) return dims[node->rank - 2] == node->dims[node->rank - 2];
  for (uint32_t i = 0; i + 1u < node->rank; i++)
    if (dims[i] != node->dims[i] && !dim_is_one(node->dims[i])) return false;
  return true;
}

static bool is_zero(const Expr *expr) {
  return expr->kind == EXPR_CONST && expr->dtype == DTYPE_F32 && expr->number == 0 && !signbit(expr->number);
}

/* The rows but for which the node is 0 by its expression. */
static RowNeed need_unless_zero(const Node *node) {
  const Expr *expr = node->attr.expr;
  if ((node->op != OP_LINEAR && node->op != OP_POINTWISE) || !expr || expr->kind != EXPR_OP || expr->op != OP_WHERE)
    return NEEDED_EVERYWHERE;
  bool holds = is_zero(expr->args[2]);
  if (!holds && !is_zero(expr->args[1])) return NEEDED_EVERYWHERE;
  NodeType domain = type_of(node);
  return need_of_condition(node, &domain, expr->args[0], holds, domain.rank - 1);
}

static bool can_skip_rows(const NeededRows *r, const Node *node) {
  if (node->dtype != DTYPE_F32 || node->rank < 2 || !r->has_input[node->id]) return false;
  if (node->op == OP_LINEAR) return !r->has_input[node->inputs.items[1]->id];
  return node->op == OP_NORM || node->op == OP_POINTWISE || node->op == OP_ATTENTION;
}

static Node *view_of_mask(NeededRows *r, const Node *mask, uint32_t rank, const Size *const *dims) {
  for (size_t i = 0; i < r->views.n; i++) {
    Node *view = r->views.items[i].view;
    if (r->views.items[i].mask == mask && view->rank == rank && !memcmp(view->dims, dims, rank * sizeof *dims))
      return view;
  }
  Node *node = r->pass->graph->first;
  while (node != mask) node = node->next;
  Builder b = pass_builder(r->pass, node->next, node);
  Node *view = match_reshape(&b, node, rank, dims);
  vec_push(r->pass->scratch, &r->views, (MaskView){mask, view});
  return view;
}

/* The mask becomes an input: the last, but before the weights of a norm. */
static void set_mask(NeededRows *r, Node *node, Node *mask, bool where) {
  size_t n = node->inputs.n, at = n - (size_t)(node->op == OP_NORM ? node->attr.has_weight + node->attr.has_bias : 0);
  Node **inputs = ARENA_ARRAY(r->pass->scratch, Node *, n + 1);
  memcpy(inputs, node->inputs.items, at * sizeof *inputs);
  inputs[at] = mask;
  memcpy(inputs + at + 1, node->inputs.items + at, (n - at) * sizeof *inputs);
  graph_set_inputs(r->pass->graph, node, (uint32_t)n + 1, inputs);
  node->attr.rows_mask = (uint8_t)(at + 1);
  node->attr.rows_where = where;
}

static void record(NeededRows *r, const Node *node, const Node *mask, bool where) {
  if (op_table[node->op].category != CATEGORY_CONTRACT) return;
  StrBuf shape = strbuf_new(r->pass->scratch);
  node_print_shape(&shape, r->pass->graph->sizes, mask);
  pass_record(r->pass, "needed-rows", true, node,
              "only rows where the mask %s is %s are computed: nobody needs the others", shape.text,
              where ? "true" : "false");
}

/* The first of the masks that says which rows of the node are to be computed; its shape goes to `dims`. */
static const RowMask *fitting_mask(const NeededRows *r, const Node *node, const RowNeed *need, const Size **dims) {
  const Size *one = size_const(r->pass->graph->sizes, 1);
  for (uint32_t i = 0; i < need->n_masks; i++) {
    const RowMask *mask = &need->masks[i];
    if (shape_of_rows(node, mask, dims, one) && names_all_rows(node, dims) && !match_depends(r->pass, mask->node, node))
      return mask;
  }
  return NULL;
}

static bool skip_rows(NeededRows *r, Node *node) {
  enum { MOST_INPUTS = 200 }; /* the number of the mask is a byte */
  const Size *dims[MAX_RANK];
  if (!can_skip_rows(r, node) || node->inputs.n > MOST_INPUTS) return false;
  RowNeed need = r->needs[node->id];
  bool is_zero = need.kind == NEED_ALL && !expr_can_fail(r->pass->scratch, node->attr.expr);
  if (is_zero) need = need_unless_zero(node);
  const RowMask *mask = fitting_mask(r, node, &need, dims);
  if (!mask) return false;
  Node *view = view_of_mask(r, mask->node, node->rank - 1u, dims);
  set_mask(r, node, view, mask->where);
  node->attr.rows_zero = is_zero;
  record(r, node, view, mask->where);
  return true;
}

bool pass_needed_rows(Pass *pass) {
  Graph *graph = pass->graph;
  if (graph->ragged_batch >= 0) return false; /* runs item by item, without padding */
  NeededRows r = {.pass = pass,
                  .needs = ARENA_ARRAY(pass->scratch, RowNeed, graph->next_id),
                  .has_input = ARENA_ARRAY(pass->scratch, bool, graph->next_id)};
  find_needs(&r);
  find_inputs(&r);
  uint32_t known = graph->next_id;
  bool changed = false;
  for (Node *node = graph->first; node; node = node->next)
    if (node->id < known) changed |= skip_rows(&r, node);
  if (changed) match_sort(pass);
  return changed;
}

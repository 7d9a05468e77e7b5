/* Live rows: rows that a mask takes out before anything reads them are not computed.
 *
 *   %4 = linear %0, %w : [b, t, 8]                         %4 = linear %0, %w, %m, rows=$2 : [b, t, 8]
 *   %5 = norm %4, ... : [b, t, 8]                    ->    %5 = norm %4, %m, ..., rows=$1 : [b, t, 8]
 *   %6 = pointwise %m1, %5, { where($0, $1, 0.0) }         %6 = pointwise %m1, %5, { where($0, $1, 0.0) }
 *
 * Legal: nothing reads the other rows. What is read where:
 *   1. an output of the model is read everywhere; where(m, x, y) reads x only where m is true, y only where it is
 *      false;
 *   2. products with weights, norms, pointwise work and views read those rows of their operands that are live in their
 *      own result;
 *   3. attention reads keys and values only where no mask that is the same for all queries makes their score -inf (a
 *      finite fill leaves a weight, which may count), and the queries whose result is live;
 *   4. several users read the union of what each reads: of conjunctions of masks, what they have in common;
 *   5. ids are all read, and what can fail does so for all rows, as before.
 * A product or pointwise work that ends in where(m, y, 0.0) leaves rows out too, and is 0 there: rows=$2 else 0.
 * An attention weight of 0 takes nothing from its value, even from infinity or NaN (docs/decisions/0002-bits.md), so
 * what is not computed cannot be seen in a result. The sum of m * x is no selection: 0 times infinity would be seen.
 *
 * The analysis is a data flow from the outputs to the inputs. RowNeed over-approximates the rows that are read:
 * forgetting a mask is always safe and only computes more. The interpreter fills dead rows with NaN, so that a wrong
 * answer shows.
 * Pays: sentences of different lengths, padded to the longest, cost what their real tokens do. */
#include <math.h>
#include <string.h>

#include "graph/infer.h"
#include "passes/match.h"
#include "passes/narrow_rows.h"

/* Which rows of a value are live: all, none, or only those where each of some masks has one of its two values. A mask
 * is a bool node; its long axes (those that are not 1) are axes of the value. */
typedef enum NeedKind { NEED_NOTHING, NEED_SOME, NEED_ALL } NeedKind;

typedef struct RowMask {
  const Node *node;
  bool where; /* live only where the mask is this */
  uint8_t n_axes;
  uint8_t axes[MAX_RANK]; /* of the value, one for each long axis of the mask, in the mask's order */
} RowMask;

enum { NEED_MOST_MASKS = 4 }; /* padding of queries and of keys, a causal mask, and one to spare */

typedef struct RowNeed {
  NeedKind kind;
  uint8_t n_masks; /* SOME: at least one; rows are live at most where all of them say so */
  RowMask masks[NEED_MOST_MASKS];
} RowNeed;

#define LIVE_EVERYWHERE ((RowNeed){.kind = NEED_ALL})

// ---- needs, masks and expressions ----

/* where(condition, x, y) reads x only where the condition is true. That says which rows of x are live if the condition
 * is a mask, its negation, or holds only where a mask does (`and`; `or` for y). */

// ---- needs ----

static bool has_mask(const RowNeed *need, const RowMask *mask) {
  for (uint32_t i = 0; i < need->n_masks; i++) {
    const RowMask *own = &need->masks[i];
    if (own->node == mask->node && own->where == mask->where && own->n_axes == mask->n_axes &&
        !memcmp(own->axes, mask->axes, mask->n_axes))
      return true;
  }
  return false;
}

/* A mask too many is left out, which is safe: more rows count as live. */
static void add_mask(RowNeed *need, const RowMask *mask) {
  if (need->n_masks == NEED_MOST_MASKS || has_mask(need, mask)) return;
  need->kind = NEED_SOME;
  need->masks[need->n_masks++] = *mask;
}

/* What either of two users reads: only the masks that both name still hold for all rows that are read. */
static RowNeed need_join(const RowNeed *a, const RowNeed *b) {
  if (a->kind == NEED_NOTHING) return *b;
  if (b->kind == NEED_NOTHING) return *a;
  RowNeed joined = LIVE_EVERYWHERE;
  for (uint32_t i = 0; i < a->n_masks; i++)
    if (has_mask(b, &a->masks[i])) add_mask(&joined, &a->masks[i]);
  return joined;
}

/* What is read where both needs say so: the masks of either. */
static RowNeed need_both(const RowNeed *a, const RowNeed *b) {
  if (a->kind == NEED_NOTHING || b->kind == NEED_NOTHING) return (RowNeed){0};
  RowNeed both = *a;
  for (uint32_t i = 0; i < b->n_masks; i++) add_mask(&both, &b->masks[i]);
  return both;
}

/* False: the operand has no such axis, or is needed along all of it. */
static bool map_mask(RowMask *mask, const int32_t *axes) {
  for (uint32_t i = 0; i < mask->n_axes && i < MAX_RANK; i++) {
    int32_t axis = axes[mask->axes[i]];
    if (axis < 0) return false;
    mask->axes[i] = (uint8_t)axis;
  }
  return true;
}

/* The need in the axes of an operand: axis i of the result is axes[i] of the operand, -1 if it is none. A mask along an
 * axis that the operand lacks is dropped. */
static RowNeed need_map(const RowNeed *need, const int32_t *axes) {
  if (need->kind != NEED_SOME) return *need;
  RowNeed mapped = LIVE_EVERYWHERE;
  for (uint32_t i = 0; i < need->n_masks; i++) {
    RowMask mask = need->masks[i];
    if (map_mask(&mask, axes)) add_mask(&mapped, &mask);
  }
  return mapped;
}

static bool need_has_axis(const RowNeed *need, uint32_t axis) {
  for (uint32_t i = 0; i < need->n_masks; i++)
    if (memchr(need->masks[i].axes, (int)axis, need->masks[i].n_axes)) return true;
  return false;
}

/* The axes of the result as those of an operand that broadcasts to it. */
static void need_aligned_axes(const Node *operand, uint32_t rank, int32_t *axes) {
  for (uint32_t i = 0; i < rank; i++) {
    int32_t own = (int32_t)(i + operand->rank) - (int32_t)rank;
    axes[i] = own < 0 || dim_is_one(operand->dims[own]) ? -1 : own;
  }
}

// ---- masks ----

/* Whether two shapes differ by axes of 1 only. */
static bool same_long_axes(const Node *a, const Node *b) {
  uint32_t i = 0, j = 0;
  for (;; i++, j++) {
    while (i < a->rank && dim_is_one(a->dims[i])) i++;
    while (j < b->rank && dim_is_one(b->dims[j])) j++;
    if (i == a->rank || j == b->rank) return i == a->rank && j == b->rank;
    if (a->dims[i] != b->dims[j]) return false;
  }
}

static bool is_negation(const Node *node) {
  return node->op == OP_POINTWISE && node->attr.expr->kind == EXPR_OP && node->attr.expr->op == OP_NOT &&
         node->attr.expr->args[0]->kind == EXPR_INPUT && node->inputs.n == 1;
}

static RowNeed need_of_condition(const Node *node, const NodeType *domain, const Expr *condition, bool holds,
                                 uint32_t apart);

/* The masks without which the given mask does not hold: a conjunction holds only where each of its parts does. Found
 * over the mask's own axes, given over those of the value. */
static RowNeed need_of_parts(const RowMask *mask, bool holds) {
  const Node *node = mask->node;
  if (node->op != OP_POINTWISE) return LIVE_EVERYWHERE;
  NodeType domain = type_of(node);
  RowNeed parts = need_of_condition(node, &domain, node->attr.expr, holds, MAX_RANK);
  int32_t axes[MAX_RANK];
  for (uint32_t i = 0, k = 0; i < node->rank; i++) axes[i] = dim_is_one(node->dims[i]) ? -1 : mask->axes[k++];
  return need_map(&parts, axes);
}

/* The need of a reader that reads only where `operand` is `holds`. The mask is followed behind axes of 1 and negations,
 * so that equal masks are one node. A mask along the axis `apart` is dropped: rows are not told apart there. */
static RowNeed need_of_mask(const Node *operand, const NodeType *domain, bool holds, uint32_t apart) {
  RowMask mask = {.node = operand, .where = holds};
  for (uint32_t i = 0; i < operand->rank; i++) {
    if (dim_is_one(operand->dims[i])) continue;
    mask.axes[mask.n_axes++] = (uint8_t)(domain->rank - operand->rank + i);
  }
  while ((mask.node->op == OP_RESHAPE || is_negation(mask.node)) &&
         same_long_axes(mask.node, mask.node->inputs.items[0])) {
    if (mask.node->op != OP_RESHAPE) mask.where = !mask.where;
    mask.node = mask.node->inputs.items[0];
  }
  RowNeed need = LIVE_EVERYWHERE;
  if (mask.n_axes == 0 || memchr(mask.axes, (int)apart, mask.n_axes)) return need;
  add_mask(&need, &mask);
  RowNeed parts = need_of_parts(&mask, mask.where);
  return need_both(&need, &parts);
}

static RowNeed need_of_condition(const Node *node, const NodeType *domain, const Expr *condition, bool holds,
                                 uint32_t apart) {
  if (condition->kind == EXPR_INPUT && condition->dtype == DTYPE_BOOL)
    return need_of_mask(node->inputs.items[condition->input], domain, holds, apart);
  if (condition->kind != EXPR_OP) return LIVE_EVERYWHERE;
  if (condition->op == OP_NOT) return need_of_condition(node, domain, condition->args[0], !holds, apart);
  if (condition->op != (holds ? OP_AND : OP_OR)) return LIVE_EVERYWHERE;
  RowNeed a = need_of_condition(node, domain, condition->args[0], holds, apart);
  RowNeed b = need_of_condition(node, domain, condition->args[1], holds, apart);
  return need_both(&a, &b);
}

// ---- expressions ----

/* Integer division by zero is an error of the run, which skipped rows would hide. */
static bool expr_can_fail(Arena *scratch, const Expr *expr) {
  if (!expr) return false;
  ExprList list = expr_list(scratch, expr);
  for (uint32_t i = 0; i < list.n; i++)
    if (list.items[i]->kind == EXPR_OP && (list.items[i]->op == OP_FLOORDIV || list.items[i]->op == OP_FLOORMOD))
      return true;
  return false;
}

/* The need of argument number `arg` of an operation whose result has this need. */
static RowNeed need_of_argument(const Node *node, const NodeType *domain, const Expr *expr, uint32_t arg,
                                const RowNeed *need) {
  if (expr->op != OP_WHERE || arg == 0) return *need;
  RowNeed selected = need_of_condition(node, domain, expr->args[0], arg == 1, domain->rank - 1);
  return need_both(need, &selected);
}

static void join_operand(const Node *node, const NodeType *domain, uint32_t input, const RowNeed *need,
                         RowNeed *operands) {
  int32_t axes[MAX_RANK];
  need_aligned_axes(node->inputs.items[input], domain->rank, axes);
  RowNeed mapped = need_map(need, axes);
  operands[input] = need_join(&operands[input], &mapped);
}

/* From the need of an expression's result to those of its operands and of acc. Gathered tables and ids are read whole:
 * which rows of a table are read depends on values. */
static void need_of_expr(Pass *pass, const Node *node, const NodeType *domain, const RowNeed *root, RowNeed *operands,
                  RowNeed *acc) {
  ExprList list = expr_list(pass->scratch, node->attr.expr);
  RowNeed *needs = ARENA_ARRAY(pass->scratch, RowNeed, list.n);
  needs[list.n - 1] = *root;
  for (uint32_t i = list.n; i-- > 0;) { /* users stand behind what they use */
    const Expr *expr = list.items[i];
    for (uint32_t j = 0; j < expr->n_args; j++) {
      RowNeed need = need_of_argument(node, domain, expr, j, &needs[i]);
      RowNeed *of = &needs[list.args[j][i]];
      *of = need_join(of, &need);
    }
    if (expr->kind == EXPR_ACC) *acc = need_join(acc, &needs[i]);
    if (expr->kind == EXPR_INPUT) join_operand(node, domain, expr->input, &needs[i], operands);
    if (expr->kind == EXPR_GATHER) operands[expr->input] = operands[expr->ids] = LIVE_EVERYWHERE;
  }
}

// ---- operations: from the rows of a result to those of the operands ----

/* There is one table, by operation; an operation without a row there reads its operands everywhere. */

typedef void FlowRule(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands);

static const Node *input(const Node *node, size_t i) { return node->inputs.items[i]; }

/* The axes of the result as axes of an operand with as many, but for those from `end` on. */
static void same_axes(uint32_t end, int32_t *axes) {
  for (uint32_t i = 0; i < MAX_RANK; i++) axes[i] = i < end ? (int32_t)i : -1;
}

// ---- rows ----

static void flow_pointwise(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  NodeType domain = type_of(node);
  RowNeed acc = {0};
  need_of_expr(pass, node, &domain, need, operands, &acc);
}

/* A norm mixes the columns of a row, never rows. */
static void flow_norm(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  int32_t axes[MAX_RANK];
  same_axes(node->rank - 1u, axes);
  RowNeed root = need_map(need, axes);
  flow_pointwise(pass, node, &root, operands);
  for (uint32_t i = 1; i <= (uint32_t)node->attr.has_weight + node->attr.has_bias; i++)
    operands[node->inputs.n - i] = LIVE_EVERYWHERE;
}

/* The axes of the result as those of the domain; the axis that is reduced has no rows of its own. */
static void flow_reduce(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  NodeType domain;
  infer_domain(pass->graph->sizes, node, &domain);
  uint32_t reduced = (uint32_t)node->attr.axis;
  bool gone = node->rank < domain.rank;
  int32_t axes[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++)
    axes[i] = gone ? (int32_t)(i + (i >= reduced)) : i == reduced ? -1 : (int32_t)i;
  RowNeed root = need_map(need, axes), acc = {0};
  need_of_expr(pass, node, &domain, &root, operands, &acc);
}

// ---- products ----

/* The need of the product itself, acc: all that the result needs if there is no epilogue. */
static RowNeed need_of_acc(Pass *pass, const Node *node, const NodeType *domain, const RowNeed *root,
                           RowNeed *operands) {
  if (!node->attr.expr) return *root;
  RowNeed acc = {0};
  need_of_expr(pass, node, domain, root, operands, &acc);
  return acc;
}

static void flow_linear(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  NodeType domain = type_of(node);
  int32_t axes[MAX_RANK];
  same_axes(node->rank - 1u, axes);
  RowNeed acc = need_of_acc(pass, node, &domain, need, operands), x = need_map(&acc, axes);
  operands[0] = need_join(&operands[0], &x);
  operands[1] = LIVE_EVERYWHERE;
}

/* A row of the result is made of the row of x and all of y; a column of the column of y and all of x. */
static void flow_matmul(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  NodeType domain = type_of(node);
  RowNeed acc = need_of_acc(pass, node, &domain, need, operands);
  int32_t x_axes[MAX_RANK], y_axes[MAX_RANK];
  need_aligned_axes(input(node, 0), node->rank, x_axes);
  need_aligned_axes(input(node, 1), node->rank, y_axes);
  x_axes[node->rank - 1] = y_axes[node->rank - 2] = -1;
  RowNeed x = need_map(&acc, x_axes), y = need_map(&acc, y_axes);
  operands[0] = need_join(&operands[0], &x);
  operands[1] = need_join(&operands[1], &y);
}

// ---- attention ----

static bool is_minus_infinity(const Expr *expr) {
  return expr->kind == EXPR_CONST && expr->dtype == DTYPE_F32 && expr->number == -INFINITY;
}

/* The keys that some query may see, over the scores: a score of -inf is a weight of exactly 0, even in a row of nothing
 * else, and a weight of 0 takes nothing from the value. Only selections around the whole expression count: below an
 * operation that could make something else of -inf they prove nothing. */
static RowNeed seen_keys(const Node *node, const NodeType *scores) {
  RowNeed seen = LIVE_EVERYWHERE;
  const Expr *expr = node->attr.expr;
  while (expr && expr->kind == EXPR_OP && expr->op == OP_WHERE) {
    bool masked = is_minus_infinity(expr->args[1]);
    if (!masked && !is_minus_infinity(expr->args[2])) break;
    RowNeed need = need_of_condition(node, scores, expr->args[0], !masked, scores->rank - 2);
    seen = need_both(&seen, &need);
    expr = expr->args[masked ? 2 : 1];
  }
  return seen;
}

static RowNeed need_of_keys(const Node *operand, const RowNeed *seen, uint32_t rank) {
  int32_t axes[MAX_RANK];
  need_aligned_axes(operand, rank, axes);
  axes[rank - 2] = -1;
  axes[rank - 1] = (int32_t)operand->rank - 2;
  return need_map(seen, axes);
}

static void flow_attention(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  NodeType scores;
  infer_domain(pass->graph->sizes, node, &scores);
  int32_t axes[MAX_RANK];
  same_axes(node->rank - 1u, axes);
  RowNeed root = need_map(need, axes), acc = need_of_acc(pass, node, &scores, &root, operands);
  need_aligned_axes(input(node, 0), node->rank, axes);
  axes[node->rank - 1] = -1;
  RowNeed q = need_map(&acc, axes), seen = seen_keys(node, &scores);
  operands[0] = need_join(&operands[0], &q);
  for (uint32_t i = 1; i <= 2; i++) {
    RowNeed keys = need_of_keys(input(node, i), &seen, scores.rank);
    operands[i] = need_join(&operands[i], &keys);
  }
}

// ---- views ----

static void flow_slice(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  (void)pass;
  int32_t axes[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++) {
    bool cut = node->dims[i] != input(node, 0)->dims[i] || !size_equals(node->attr.starts[i], 0);
    axes[i] = cut ? -1 : (int32_t)i;
  }
  operands[0] = need_map(need, axes);
}

/* Permute, reshape and concat: the axes that narrow-rows knows. */
static void flow_axes(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  int32_t *made_of = ARENA_ARRAY(pass->scratch, int32_t, node->inputs.n);
  for (size_t i = 0; i < node->inputs.n; i++) {
    int32_t axes[MAX_RANK];
    for (uint32_t axis = 0; axis < node->rank; axis++)
      axes[axis] = need_has_axis(need, axis) && narrow_axes(pass->graph->sizes, node, axis, made_of) ? made_of[i] : -1;
    RowNeed mapped = need_map(need, axes);
    operands[i] = need_join(&operands[i], &mapped);
  }
}

// ---- all operations ----

static FlowRule *const rules[N_OPS] = {
    [OP_POINTWISE] = flow_pointwise, [OP_NORM] = flow_norm,     [OP_REDUCE] = flow_reduce,
    [OP_LINEAR] = flow_linear,       [OP_MATMUL] = flow_matmul, [OP_MATMUL_FUSED] = flow_matmul,
    [OP_ATTENTION] = flow_attention, [OP_SLICE] = flow_slice,   [OP_PERMUTE] = flow_axes,
    [OP_RESHAPE] = flow_axes,        [OP_CONCAT] = flow_axes,
};

static void need_of_operands(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands) {
  for (size_t i = 0; i < node->inputs.n; i++) operands[i] = (RowNeed){0};
  bool apart = rules[node->op] && !expr_can_fail(pass->scratch, node->attr.expr);
  if (apart && need->kind != NEED_NOTHING) rules[node->op](pass, node, need, operands);
  for (size_t i = 0; i < node->inputs.n && !apart; i++) operands[i] = LIVE_EVERYWHERE;
}

// ---- the pass ----

typedef struct MaskView { /* a mask with the axes of 1 that a node's rows need */
  const Node *mask;
  Node *view;
} MaskView;

typedef struct LiveRows {
  Pass *pass;
  RowNeed *needs;  /* by id */
  bool *has_input; /* by id: depends on an input of the model */
  VEC(MaskView) views;
} LiveRows;

// ---- analysis ----

static void find_needs(LiveRows *r) {
  const Graph *graph = r->pass->graph;
  for (size_t i = 0; i < graph->outputs.n; i++) r->needs[graph->outputs.items[i].node->id] = LIVE_EVERYWHERE;
  for (const Node *node = graph->last; node; node = node->prev) {
    RowNeed *operands = ARENA_ARRAY(r->pass->scratch, RowNeed, node->inputs.n);
    if (expr_can_fail(r->pass->scratch, node->attr.expr)) r->needs[node->id] = LIVE_EVERYWHERE;
    need_of_operands(r->pass, node, &r->needs[node->id], operands);
    for (size_t i = 0; i < node->inputs.n; i++) {
      RowNeed *of = &r->needs[node->inputs.items[i]->id];
      *of = need_join(of, &operands[i]);
    }
  }
}

static void find_inputs(LiveRows *r) {
  for (const Node *node = r->pass->graph->first; node; node = node->next) {
    r->has_input[node->id] = node->op == OP_INPUT;
    for (size_t i = 0; i < node->inputs.n; i++) r->has_input[node->id] |= r->has_input[node->inputs.items[i]->id];
  }
}

// ---- what becomes of it ----

/* The mask's shape over the rows of the node: all axes but the last, 1 where the mask is the same. False: the mask has
 * other axes, or a row has one element, which is not worth skipping. */
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

/* Attention skips queries within a head, whatever the other axes; the others skip rows, so the mask must tell each
 * row. */
static bool names_all_rows(const Node *node, const Size *const *dims) {
  if (node->op == OP_ATTENTION) return dims[node->rank - 2] == node->dims[node->rank - 2];
  for (uint32_t i = 0; i + 1u < node->rank; i++)
    if (dims[i] != node->dims[i] && !dim_is_one(node->dims[i])) return false;
  return true;
}

static bool is_zero(const Expr *expr) {
  return expr->kind == EXPR_CONST && expr->dtype == DTYPE_F32 && expr->number == 0 && !signbit(expr->number);
}

/* The rows outside of which the node is 0 by its own expression. -0 does not count: the rows are filled with +0. */
static RowNeed need_unless_zero(const Node *node) {
  const Expr *expr = node->attr.expr;
  if ((node->op != OP_LINEAR && node->op != OP_POINTWISE) || !expr || expr->kind != EXPR_OP || expr->op != OP_WHERE)
    return LIVE_EVERYWHERE;
  bool holds = is_zero(expr->args[2]);
  if (!holds && !is_zero(expr->args[1])) return LIVE_EVERYWHERE;
  NodeType domain = type_of(node);
  return need_of_condition(node, &domain, expr->args[0], holds, domain.rank - 1);
}

/* The kernels that can leave rows out. A value that no input reaches is computed once, so there is nothing to save. */
static bool can_skip_rows(const LiveRows *r, const Node *node) {
  if (node->dtype != DTYPE_F32 || node->rank < 2 || !r->has_input[node->id]) return false;
  if (node->op == OP_LINEAR) return !r->has_input[node->inputs.items[1]->id];
  return node->op == OP_NORM || node->op == OP_POINTWISE || node->op == OP_ATTENTION;
}

/* The mask in the shape that a node's rows need; one view for all nodes that need the same. */
static Node *view_of_mask(LiveRows *r, const Node *mask, uint32_t rank, const Size *const *dims) {
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
static void set_mask(LiveRows *r, Node *node, Node *mask, bool where) {
  size_t n = node->inputs.n, at = n - (size_t)(node->op == OP_NORM ? node->attr.has_weight + node->attr.has_bias : 0);
  Node **inputs = ARENA_ARRAY(r->pass->scratch, Node *, n + 1);
  memcpy(inputs, node->inputs.items, at * sizeof *inputs);
  inputs[at] = mask;
  memcpy(inputs + at + 1, node->inputs.items + at, (n - at) * sizeof *inputs);
  graph_set_inputs(r->pass->graph, node, (uint32_t)n + 1, inputs);
  node->attr.rows_mask = (uint8_t)(at + 1);
  node->attr.rows_where = where;
}

static void record(LiveRows *r, const Node *node, const Node *mask, bool where) {
  if (op_table[node->op].category != CATEGORY_CONTRACT) return;
  StrBuf shape = strbuf_new(r->pass->scratch);
  node_print_shape(&shape, r->pass->graph->sizes, mask);
  pass_record(r->pass, FUSION_LIVE_ROWS, true, node,
              "only rows where the mask %s is %s are computed: nothing reads the others", shape.text,
              where ? "true" : "false");
}

/* The first of the masks that says which rows of the node are to be computed; its shape goes to `dims`. A mask that is
 * itself computed from the node would come too late. */
static const RowMask *fitting_mask(const LiveRows *r, const Node *node, const RowNeed *need, const Size **dims) {
  const Size *one = size_const(r->pass->graph->sizes, 1);
  for (uint32_t i = 0; i < need->n_masks; i++) {
    const RowMask *mask = &need->masks[i];
    if (shape_of_rows(node, mask, dims, one) && names_all_rows(node, dims) && !match_depends(r->pass, mask->node, node))
      return mask;
  }
  return NULL;
}

static bool skip_rows(LiveRows *r, Node *node) {
  enum { MOST_INPUTS = 200 }; /* rows_mask is a byte */
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

bool pass_live_rows(Pass *pass) {
  Graph *graph = pass->graph;
  if (graph->ragged_batch >= 0) return false; /* it runs item by item, without padding */
  LiveRows r = {.pass = pass,
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

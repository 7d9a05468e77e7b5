/* Masks: nested selections with one fill become one, with the blocked places said positively.
 *
 *   %3 = where %a, -inf, %s             %3 = or %a, %b
 *   %4 = where %b, -inf, %3             %4 = where %3, -inf, %s
 *
 *   %2 = where (and %keep, not %c), %s, -1e10    where (or (not %keep), %c), -1e10, %s
 *
 * Legal:
 *   1. the fills are the same number; where selects, so the score under a mask is not looked at in either form;
 *   2. the inner selection has no other use;
 *   3. a condition is negated only if that adds no work over scores: `not` moves to its operands (De Morgan).
 * Additive masks stay additions: s + -inf is NaN where s is NaN, a selection is not.
 * Pays: one test per score, and plan sees which keys are skipped. */
#include "passes/match.h"

enum { MAX_DEPTH = 8 };

static bool same_fill(const Node *x, const Node *y) {
  double a, b;
  return match_number(x, &a) && match_number(y, &b) && a == b;
}

static bool is_fill(const Node *node) {
  double number;
  return match_number(node, &number);
}

// ---- the condition, negated ----

static Node *negated(Builder *b, Node *node, unsigned depth);

static bool is_integer_comparison(const Node *node) {
  return op_opposite(node->op) != N_OPS && node->inputs.items[0]->dtype == DTYPE_I32;
}

/* Whether the negation costs no operation that the condition doesn't have. */
static bool negates_freely(const Node *node, unsigned depth) {
  if (depth == 0) return false;
  if (node->op == OP_NOT || is_integer_comparison(node)) return true;
  if (op_table[node->op].category == CATEGORY_VIEW) return negates_freely(node->inputs.items[0], depth - 1);
  if (node->op != OP_AND) return false;
  return negates_freely(node->inputs.items[0], depth - 1) || negates_freely(node->inputs.items[1], depth - 1);
}

static Node *negated_view(Builder *b, Node *node, unsigned depth) {
  Node *x = negated(b, node->inputs.items[0], depth - 1);
  if (node->op == OP_RESHAPE) return build_reshape(b, x, node->rank, node->dims);
  if (node->op == OP_PERMUTE) return build_permute(b, x, node->attr.axes);
  return build_slice(b, x, node->attr.starts, node->dims);
}

static Node *negated(Builder *b, Node *node, unsigned depth) {
  if (node->op == OP_NOT) return node->inputs.items[0];
  if (is_integer_comparison(node))
    return build_binary(b, op_opposite(node->op), node->inputs.items[0], node->inputs.items[1]);
  if (!negates_freely(node, depth)) return build_unary(b, OP_NOT, node);
  if (op_table[node->op].category == CATEGORY_VIEW) return negated_view(b, node, depth);
  Node *x = negated(b, node->inputs.items[0], depth - 1), *y = negated(b, node->inputs.items[1], depth - 1);
  return build_binary(b, OP_OR, x, y);
}

// ---- the rules ----

/* where(keep, s, fill) -> where(blocked, fill, s) */
static Node *fill_first(Builder *b, Node *node) {
  Node *condition = node->inputs.items[0], *x = node->inputs.items[1], *y = node->inputs.items[2];
  if (!is_fill(y) || is_fill(x) || !negates_freely(condition, MAX_DEPTH)) return NULL;
  return build_where(b, negated(b, condition, MAX_DEPTH), y, x);
}

/* where(a, fill, where(b, fill, s)) -> where(a or b, fill, s) */
static Node *nested(Pass *pass, Builder *b, Node *node) {
  Node *inner = node->inputs.items[2];
  if (inner->op != OP_WHERE || match_only_user(pass, inner) != node) return NULL;
  if (!same_fill(node->inputs.items[1], inner->inputs.items[1])) return NULL;
  Node *both = build_binary(b, OP_OR, inner->inputs.items[0], node->inputs.items[0]);
  return build_where(b, both, node->inputs.items[1], inner->inputs.items[2]);
}

/* where(a, where(b, s, fill), fill) -> where(a and b, s, fill) */
static Node *nested_keeps(Pass *pass, Builder *b, Node *node) {
  Node *inner = node->inputs.items[1];
  if (inner->op != OP_WHERE || match_only_user(pass, inner) != node) return NULL;
  if (!same_fill(node->inputs.items[2], inner->inputs.items[2])) return NULL;
  Node *both = build_binary(b, OP_AND, inner->inputs.items[0], node->inputs.items[0]);
  return build_where(b, both, inner->inputs.items[1], node->inputs.items[2]);
}

bool pass_combine_masks(Pass *pass) {
  bool changed = false;
  for (Node *node = pass->graph->first, *next; node; node = next) {
    next = node->next;
    if (node->op != OP_WHERE || node->dtype != DTYPE_F32) continue;
    Builder b = pass_builder(pass, node, node);
    Node *by = fill_first(&b, node);
    if (!by) by = nested(pass, &b, node);
    if (!by) by = nested_keeps(pass, &b, node);
    if (by && !node_same_shape(by, node)) {
      match_delete_unused(pass, by);
      by = NULL;
    }
    if (!by) continue;
    match_replace(pass, node, by);
    next = by; /* the new selection may be inside or around another one */
    changed = true;
  }
  return changed;
}

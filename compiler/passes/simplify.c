/* Passes that make a graph smaller without making anything new: masks, common subexpressions, dead code.
 *
 * In: a graph. Out: the same values from fewer nodes. Each pass says before its code what it does and why that is
 * legal. */
#include <string.h>

#include "passes/match.h"

// ---- combine-masks ----

/* Masks: nested selections with one fill become one, with the blocked elements named by a mask that is true there.
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
 *
 * Additive masks stay additions: s + -inf is NaN where s is NaN, a selection is not.
 * Pays: one test per score, and plan sees which keys are skipped. */

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

/* Whether the negation costs no operation that the condition does not have. For an `and` one such operand is enough:
 * its negation disappears, which pays for the `not` of the other. */
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

// ---- cse ----

/* Common subexpressions: of equal operations on equal operands the first is kept.
 *
 *   %4 = reshape %1 : f32[2, 8]   %4 = reshape %1 : f32[2, 8]
 *   %5 = reshape %1 : f32[2, 8]   users of %5 use %4
 *
 * Legal: the operations are pure, so equal ones give equal values. Inputs of the model are never equal to each other.
 * The origin of the first is kept. Fused nodes are left alone: nothing makes equal ones. */

typedef struct Key {
  const char *bytes;
  size_t length;
} Key;

static void add_bytes(StrBuf *key, const void *bytes, size_t length) { strbuf_add_n(key, bytes, length); }

/* Not maximum and minimum: of two NaN, or of 0 and -0, they return the one on a certain side. */
static bool commutes(OpKind op) {
  return op == OP_ADD || op == OP_MUL || op == OP_EQ || op == OP_NE || op == OP_AND || op == OP_OR;
}

/* Operands of what commutes go in sorted. That keeps the bits: x + y rounds like y + x. */
static void add_inputs(StrBuf *key, const Node *node) {
  uint32_t ids[2];
  if (commutes(node->op)) {
    for (size_t i = 0; i < 2; i++) ids[i] = node->inputs.items[i]->id;
    if (ids[0] > ids[1]) {
      uint32_t first = ids[0];
      ids[0] = ids[1];
      ids[1] = first;
    }
    add_bytes(key, ids, sizeof ids);
    return;
  }
  for (size_t i = 0; i < node->inputs.n; i++) add_bytes(key, &node->inputs.items[i]->id, sizeof(uint32_t));
}

/* Everything that decides the value; what is forgotten here would merge nodes that differ. Texts go in by content,
 * sizes by address: they are interned. */
static void add_attributes(StrBuf *key, const NodeAttr *attr) {
  add_bytes(key, &attr->number, sizeof attr->number);
  add_bytes(key, &attr->integer, sizeof attr->integer);
  add_bytes(key, &attr->size, sizeof(void *));
  add_bytes(key, attr->starts, sizeof attr->starts);
  add_bytes(key, attr->axes, sizeof attr->axes);
  add_bytes(key, &attr->axis, sizeof attr->axis);
  add_bytes(key, &attr->eps, sizeof attr->eps);
  add_bytes(key, &attr->base, sizeof attr->base);
  bool flags[] = {attr->keepdim, attr->has_weight, attr->has_bias, attr->interleaved, attr->is_int8};
  add_bytes(key, flags, sizeof flags);
  if (attr->name) strbuf_add(key, attr->name);
}

static Key key_of(Arena *arena, const Node *node) {
  StrBuf key = strbuf_new(arena);
  uint32_t head[] = {node->op, node->dtype, node->rank, (uint32_t)node->inputs.n};
  add_bytes(&key, head, sizeof head);
  add_bytes(&key, node->dims, node->rank * sizeof(void *));
  add_inputs(&key, node);
  add_attributes(&key, &node->attr);
  return (Key){key.text, key.length};
}

bool pass_eliminate_common(Pass *pass) {
  bool changed = false;
  Map seen = map_new(pass->scratch);
  for (Node *node = pass->graph->first, *next; node; node = next) {
    next = node->next;
    if (node->op == OP_INPUT || node->attr.expr) continue;
    Key key = key_of(pass->scratch, node);
    MapEntry *known = map_find(&seen, key.bytes, key.length);
    if (!known) {
      map_put_n(&seen, key.bytes, key.length, node);
      continue;
    }
    match_replace(pass, node, known->value);
    changed = true;
  }
  return changed;
}

// ---- dce ----

/* Dead code: what no output needs is not computed, and its weights are not asked for.
 *
 * Legal: operations have no effects but their results. Inputs stay, used or not: they are part of the interface. */

bool pass_eliminate_dead(Pass *pass) {
  bool changed = false;
  for (Node *node = pass->graph->last, *prev; node; node = prev) {
    prev = node->prev;
    if (node->op == OP_INPUT || node->users.n || graph_is_output(pass->graph, node)) continue;
    graph_delete(pass->graph, node);
    changed = true;
  }
  return changed;
}

/* Passes that make a graph smaller without making anything new: constants, masks, common subexpressions, dead code.
 *
 * In: a graph. Out: the same values from fewer nodes. Each pass says before its code what it does and why that is
 * legal. */
#include <string.h>

#include "graph/attributes.h"
#include "graph/eval.h"
#include "passes/match.h"

// ---- fold-constants ----

/* Operations whose result is one number everywhere, known now.
 *
 *   %2 = add 1.0, 2.0             %2 = full 3.0
 *   %4 = ne (full 0.0), 0.0       %4 = full false
 *
 * Legal:
 *   1. all operands are uniform, or the node is small, free of weights and its value turns out uniform;
 *   2. the number comes from the reference interpreter, so it is what the operation gives;
 *   3. a division of integers by zero stays: it is an error of the run.
 * A constant that is not uniform has no node of its own; it stays an operation. Out: FULL nodes of the same shape,
 * which need no memory and vanish in expressions. */

enum { MAX_ELEMENTS = 4096 }; /* of a node that is evaluated to see whether it is uniform */

/* FULL of the shape and type of `like`, in its place. */
static Node *full_of(Pass *pass, const Node *like, double number, int64_t integer) {
  Graph *graph = pass->graph;
  Node *full = graph_add(graph, (Node *)like, OP_FULL, like->dtype, like->rank, like->dims, 0, NULL, like->origin);
  full->attr.number = like->dtype == DTYPE_F32 ? number : 0;
  full->attr.integer = like->dtype == DTYPE_F32 ? 0 : integer;
  return full;
}

static double element_number(const Tensor *tensor, int64_t i) {
  return tensor->dtype == DTYPE_F32 ? (double)((const float *)tensor->data)[i] : 0;
}

static int64_t element_integer(const Tensor *tensor, int64_t i) {
  if (tensor->dtype == DTYPE_I32) return ((const int32_t *)tensor->data)[i];
  return tensor->dtype == DTYPE_BOOL ? ((const uint8_t *)tensor->data)[i] : 0;
}

/* By bits, so that -0 and 0 are two numbers and NaN is one. A tensor without elements is not uniform: it has no
 * number. */
static bool is_uniform(const Tensor *tensor) {
  int64_t n = tensor_elements(tensor);
  size_t bytes = dtype_bytes[tensor->dtype];
  for (int64_t i = 1; i < n; i++)
    if (memcmp((const char *)tensor->data + (size_t)i * bytes, tensor->data, bytes) != 0) return false;
  return n > 0;
}

/* The node's value if it is one number; NULL if not. */
static Node *evaluated(Pass *pass, const Node *like, const Graph *graph, const Node *node) {
  Diag ignored = diag_new(pass->scratch);
  Tensor *tensor = graph_eval_static(pass->scratch, &ignored, graph, node, NULL, NULL);
  if (!tensor || !is_uniform(tensor)) return NULL;
  return full_of(pass, like, element_number(tensor, 0), element_integer(tensor, 0));
}

// ---- operations on uniform operands, of any size ----

static bool uniform_operand(Builder *b, const Node *x, Node **scalar) {
  double number = 0;
  int64_t integer = 0;
  if (!match_number(x, &number) && !match_integer(x, &integer)) return false;
  *scalar = build_scalar(b, x->dtype, number, integer);
  return true;
}

static bool divides_by_zero(const Node *node) {
  int64_t divisor;
  return (node->op == OP_FLOORDIV || node->op == OP_FLOORMOD) && match_integer(node->inputs.items[1], &divisor) &&
         divisor == 0;
}

/* The operation on scalars, evaluated in a graph of its own: the result does not depend on the shape, which may have
 * run-time sizes. */
static Node *fold_pointwise(Pass *pass, const Node *node) {
  if (divides_by_zero(node)) return NULL;
  Graph *graph = graph_new(pass->scratch, "constant");
  Builder b = {.graph = graph, .origin = node->origin};
  Node *scalars[3];
  for (size_t i = 0; i < node->inputs.n; i++)
    if (!uniform_operand(&b, node->inputs.items[i], &scalars[i])) return NULL;
  Node *operation =
      graph_add(graph, NULL, node->op, node->dtype, 0, NULL, (uint32_t)node->inputs.n, scalars, node->origin);
  return evaluated(pass, node, graph, operation);
}

static Node *fold_view(Pass *pass, const Node *node) {
  double number = 0;
  int64_t integer = 0;
  if (!match_number(node, &number) && !match_integer(node, &integer)) return NULL;
  return full_of(pass, node, number, integer);
}

static Node *fold_concat(Pass *pass, const Node *node) {
  double number, first_number = 0;
  int64_t integer, first_integer = 0;
  for (size_t i = 0; i < node->inputs.n; i++) {
    number = 0, integer = 0;
    const Node *x = node->inputs.items[i];
    if (!match_number(x, &number) && !match_integer(x, &integer)) return NULL;
    if (i == 0) first_number = number, first_integer = integer;
    if (memcmp(&number, &first_number, sizeof number) != 0 || integer != first_integer) return NULL;
  }
  return full_of(pass, node, first_number, first_integer);
}

/* The mean, maximum and minimum of equal numbers is that number. A sum is not folded: it depends on how many there are,
 * which a run-time size may decide. */
static Node *fold_reduction(Pass *pass, const Node *node) {
  double number;
  if (node->op != OP_MEAN && node->op != OP_MAX && node->op != OP_MIN) return NULL;
  return match_number(node->inputs.items[0], &number) ? full_of(pass, node, number, 0) : NULL;
}

static Node *fold_size(Pass *pass, const Node *node) {
  int64_t value;
  return size_is_const(node->attr.size, &value) ? full_of(pass, node, (double)value, value) : NULL;
}

// ---- small nodes without weights ----

/* The limit bounds the time that folding takes: a causal mask of 64 x 64 is looked at, one of 1024 x 1024 is not. */
static bool is_small(const Node *node) {
  int64_t elements = 1, dim;
  for (uint32_t i = 0; i < node->rank; i++) {
    if (!size_is_const(node->dims[i], &dim) || dim <= 0 || dim > MAX_ELEMENTS / elements) return false;
    elements *= dim;
  }
  return true;
}

/* Positions and causal masks of a size known now, and pointwise work on them. */
static bool could_be_uniform(const Node *node, unsigned depth) {
  if (depth == 0 || !is_small(node)) return false;
  if (node->op == OP_FULL || node->op == OP_POSITIONS || node->op == OP_CAUSAL_MASK) return true;
  if (!op_is_pointwise(node->op) && op_table[node->op].category != CATEGORY_VIEW) return false;
  for (size_t i = 0; i < node->inputs.n; i++)
    if (!could_be_uniform(node->inputs.items[i], depth - 1)) return false;
  return true;
}

/* A choice between a tensor and itself, whatever the condition: a padding row's, whose gradient alone is another. */
static bool chooses_nothing(const Node *node) {
  return node->op == OP_WHERE && node->inputs.items[1] == node->inputs.items[2] &&
         node_same_shape(node, node->inputs.items[1]);
}

static Node *folded(Pass *pass, const Node *node) {
  Node *by = NULL;
  if (node->op == OP_FULL) return NULL;
  if (chooses_nothing(node)) return node->inputs.items[1];
  if (op_is_pointwise(node->op)) by = fold_pointwise(pass, node);
  if (op_table[node->op].category == CATEGORY_VIEW) by = fold_view(pass, node);
  if (op_table[node->op].category == CATEGORY_REDUCE) by = fold_reduction(pass, node);
  if (node->op == OP_CONCAT) by = fold_concat(pass, node);
  if (node->op == OP_SIZE) by = fold_size(pass, node);
  if (!by && could_be_uniform(node, 8)) by = evaluated(pass, node, pass->graph, node);
  return by;
}

bool pass_fold_constants(Pass *pass) {
  bool changed = false;
  for (Node *node = pass->graph->first, *next; node; node = next) {
    next = node->next;
    Node *by = folded(pass, node);
    if (!by) continue;
    match_replace(pass, node, by);
    changed = true;
  }
  return changed;
}

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

static Key key_of(Arena *arena, const Node *node) {
  StrBuf key = strbuf_new(arena);
  uint32_t head[] = {node->op, node->dtype, node->rank, (uint32_t)node->inputs.n};
  add_bytes(&key, head, sizeof head);
  add_bytes(&key, node->dims, node->rank * sizeof(void *));
  add_inputs(&key, node);
  attributes_add_key(&key, &node->attr);
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

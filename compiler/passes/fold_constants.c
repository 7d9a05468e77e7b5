/* Constant folding: operations whose result is one number everywhere, known now.
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
#include <string.h>

#include "graph/eval.h"
#include "passes/match.h"

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

static Node *folded(Pass *pass, const Node *node) {
  Node *by = NULL;
  if (node->op == OP_FULL) return NULL;
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

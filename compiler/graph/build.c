/* In: valid operands. Out: nodes with the type that infer_node gave them, in the graph's arena. A fault that it finds
 * is an internal error, because elaborate and the passes check first. Each function drafts a node on the stack, infers
 * its type and adds it, so that the type of a result is decided in one place. See build.h. */
#include "graph/build.h"

#include <string.h>

#include "base/check.h"
#include "graph/infer.h"

typedef struct Draft {
  Node node; /* op, attributes, and the shape where the operation carries it */
  Node *inputs[3];
} Draft;

static Draft draft(OpKind op, uint32_t n, Node *a, Node *b, Node *c) {
  Draft d = {.node = {.op = op}, .inputs = {a, b, c}};
  d.node.inputs.n = n;
  return d;
}

/* For operations that carry their own shape: infer_node checks it instead of computing it. */
static void shape(Draft *d, DType dtype, uint32_t rank, const Size *const *dims) {
  CHECK(rank <= MAX_RANK, "%s of rank %u", op_table[d->node.op].name, rank);
  d->node.dtype = dtype;
  d->node.rank = (uint8_t)rank;
  for (uint32_t i = 0; i < rank; i++) d->node.dims[i] = dims[i];
}

static Node *add(Builder *b, const Node *d, Node *const *inputs) {
  NodeType type;
  const char *fault = infer_node(b->graph->sizes, d, &type);
  CHECK(!fault, "%s", fault);
  uint32_t n = (uint32_t)d->inputs.n;
  Node *node = graph_add(b->graph, b->before, d->op, type.dtype, type.rank, type.dims, n, inputs, b->origin);
  node->attr = d->attr;
  return node;
}

static Node *finish(Builder *b, Draft *d) {
  d->node.inputs.items = d->inputs;
  return add(b, &d->node, d->inputs);
}

// ---- sources ----

Node *build_input(Builder *b, const char *name, DType dtype, uint32_t rank, const Size *const *dims) {
  Draft d = draft(OP_INPUT, 0, NULL, NULL, NULL);
  shape(&d, dtype, rank, dims);
  d.node.attr.name = arena_strdup(b->graph->arena, name);
  return finish(b, &d);
}

Node *build_weight(Builder *b, const char *name, uint32_t rank, const Size *const *dims) {
  Draft d = draft(OP_WEIGHT, 0, NULL, NULL, NULL);
  shape(&d, DTYPE_F32, rank, dims);
  d.node.attr.name = arena_strdup(b->graph->arena, name);
  Node *node = finish(b, &d);
  map_put(&b->graph->declared_weights, name, node);
  return node;
}

Node *build_full(Builder *b, double number, uint32_t rank, const Size *const *dims) {
  Draft d = draft(OP_FULL, 0, NULL, NULL, NULL);
  shape(&d, DTYPE_F32, rank, dims);
  d.node.attr.number = number;
  return finish(b, &d);
}

Node *build_filled(Builder *b, DType dtype, int64_t number, uint32_t rank, const Size *const *dims) {
  Draft d = draft(OP_FULL, 0, NULL, NULL, NULL);
  shape(&d, dtype, rank, dims);
  if (dtype == DTYPE_F32) d.node.attr.number = (double)number;
  else d.node.attr.integer = number;
  return finish(b, &d);
}

Node *build_scalar(Builder *b, DType dtype, double number, int64_t integer) {
  Draft d = draft(OP_FULL, 0, NULL, NULL, NULL);
  d.node.dtype = dtype;
  if (dtype == DTYPE_F32) d.node.attr.number = number;
  else d.node.attr.integer = integer;
  return finish(b, &d);
}

Node *build_size(Builder *b, DType dtype, const Size *size) {
  Draft d = draft(OP_SIZE, 0, NULL, NULL, NULL);
  d.node.dtype = dtype;
  d.node.attr.size = size;
  return finish(b, &d);
}

Node *build_positions(Builder *b, const Size *n) {
  Draft d = draft(OP_POSITIONS, 0, NULL, NULL, NULL);
  shape(&d, DTYPE_I32, 1, &n);
  return finish(b, &d);
}

Node *build_causal_mask(Builder *b, const Size *q, const Size *k) {
  Draft d = draft(OP_CAUSAL_MASK, 0, NULL, NULL, NULL);
  shape(&d, DTYPE_BOOL, 2, (const Size *const[]){q, k});
  return finish(b, &d);
}

// ---- pointwise ----

Node *build_unary(Builder *b, OpKind op, Node *x) {
  Draft d = draft(op, 1, x, NULL, NULL);
  return finish(b, &d);
}

Node *build_binary(Builder *b, OpKind op, Node *x, Node *y) {
  Draft d = draft(op, 2, x, y, NULL);
  return finish(b, &d);
}

Node *build_where(Builder *b, Node *condition, Node *x, Node *y) {
  Draft d = draft(OP_WHERE, 3, condition, x, y);
  return finish(b, &d);
}

// ---- views ----

Node *build_slice(Builder *b, Node *x, const Size *const *starts, const Size *const *dims) {
  Draft d = draft(OP_SLICE, 1, x, NULL, NULL);
  shape(&d, x->dtype, x->rank, dims);
  for (uint32_t i = 0; i < x->rank; i++) d.node.attr.starts[i] = starts[i];
  return finish(b, &d);
}

Node *build_reshape(Builder *b, Node *x, uint32_t rank, const Size *const *dims) {
  Draft d = draft(OP_RESHAPE, 1, x, NULL, NULL);
  shape(&d, x->dtype, rank, dims);
  return finish(b, &d);
}

Node *build_permute(Builder *b, Node *x, const uint8_t *axes) {
  Draft d = draft(OP_PERMUTE, 1, x, NULL, NULL);
  if (x->rank) memcpy(d.node.attr.axes, axes, x->rank);
  return finish(b, &d);
}

Node *build_transpose(Builder *b, Node *x, uint32_t i, uint32_t j) {
  uint8_t axes[MAX_RANK];
  CHECK(i < x->rank && j < x->rank, "axes %u and %u of a tensor of rank %u", i, j, x->rank);
  for (uint8_t k = 0; k < x->rank; k++) axes[k] = k;
  axes[i] = (uint8_t)j;
  axes[j] = (uint8_t)i;
  return build_permute(b, x, axes);
}

// ---- concat, gather, reductions, norms ----

/* Any number of operands, so the draft cannot hold them. */
Node *build_concat(Builder *b, uint32_t n, Node *const *xs, int32_t axis) {
  Draft d = draft(OP_CONCAT, n, NULL, NULL, NULL);
  d.node.inputs.items = arena_copy(b->graph->arena, xs, n * sizeof *xs);
  d.node.attr.axis = axis;
  return add(b, &d.node, xs);
}

Node *build_gather(Builder *b, Node *table, Node *ids) {
  Draft d = draft(OP_GATHER, 2, table, ids, NULL);
  return finish(b, &d);
}

Node *build_take(Builder *b, Node *x, Node *ids, int32_t axis) {
  Draft d = draft(OP_TAKE, 2, x, ids, NULL);
  d.node.attr.axis = axis;
  return finish(b, &d);
}

Node *build_every(Builder *b, Node *x, int64_t step, int32_t axis, const Size *dim) {
  Draft d = draft(OP_EVERY, 1, x, NULL, NULL);
  shape(&d, x->dtype, x->rank, (const Size *const *)x->dims);
  d.node.dims[axis] = dim;
  d.node.attr.axis = axis;
  d.node.attr.size = size_const(b->graph->sizes, step);
  return finish(b, &d);
}

Node *build_cumsum(Builder *b, Node *x, int32_t axis) {
  Draft d = draft(OP_CUMSUM, 1, x, NULL, NULL);
  d.node.attr.axis = axis;
  return finish(b, &d);
}

Node *build_shift(Builder *b, Node *x, int64_t n, int32_t axis) {
  Draft d = draft(OP_SHIFT, 1, x, NULL, NULL);
  d.node.attr.axis = axis;
  d.node.attr.size = size_const(b->graph->sizes, n);
  return finish(b, &d);
}

Node *build_linear_attention(Builder *b, Node *const *qkv, Node *decay, Node *beta) {
  Draft d = draft(OP_LINEAR_ATTENTION, 3, NULL, NULL, NULL);
  Node **inputs = ARENA_ARRAY(b->graph->arena, Node *, 5);
  memcpy(inputs, qkv, 3 * sizeof *inputs);
  uint32_t n = 3;
  if (decay) inputs[n++] = decay;
  if (beta) inputs[n++] = beta;
  d.node.inputs.items = inputs;
  d.node.inputs.n = n;
  d.node.attr.has_decay = decay != NULL;
  d.node.attr.has_beta = beta != NULL;
  return add(b, &d.node, inputs);
}

Node *build_linear_attention_state(Builder *b, Node *of) {
  Draft d = draft(OP_LINEAR_ATTENTION_STATE, 1, of, NULL, NULL);
  return finish(b, &d);
}

Node *build_linear_attention_grad(Builder *b, const Node *y, Node *g) {
  CHECK(y->op == OP_LINEAR_ATTENTION && !y->attr.has_initial, "the gradient of %s", op_table[y->op].name);
  Draft d = draft(OP_LINEAR_ATTENTION_GRAD, (uint32_t)y->inputs.n + 1, NULL, NULL, NULL);
  Node **inputs = ARENA_ARRAY(b->graph->arena, Node *, y->inputs.n + 1);
  memcpy(inputs, y->inputs.items, y->inputs.n * sizeof *inputs);
  inputs[y->inputs.n] = g;
  d.node.inputs.items = inputs;
  d.node.attr.has_decay = y->attr.has_decay;
  d.node.attr.has_beta = y->attr.has_beta;
  return add(b, &d.node, inputs);
}

Node *build_linear_attention_grad_part(Builder *b, OpKind part, Node *grad) {
  Draft d = draft(part, 1, grad, NULL, NULL);
  return finish(b, &d);
}

Node *build_scatter(Builder *b, Node *x, Node *ids, Node *sums, const Size *n) {
  Draft d = draft(OP_SCATTER, sums ? 3 : 2, x, ids, sums);
  shape(&d, DTYPE_F32, 2, (const Size *const[]){n, x->dims[1]});
  return finish(b, &d);
}

Node *build_topk(Builder *b, Node *x, int64_t k, int32_t axis) {
  Draft d = draft(OP_TOPK, 1, x, NULL, NULL);
  shape(&d, DTYPE_I32, x->rank, (const Size *const *)x->dims);
  d.node.dims[axis] = size_const(b->graph->sizes, k);
  d.node.attr.axis = axis;
  return finish(b, &d);
}

Node *build_places(Builder *b, OpKind op, Node *x, int32_t axis) {
  Draft d = draft(op, 1, x, NULL, NULL);
  d.node.attr.axis = axis;
  return finish(b, &d);
}

Node *build_reduce(Builder *b, OpKind op, Node *x, int32_t axis, bool keepdim) {
  Draft d = draft(op, 1, x, NULL, NULL);
  d.node.attr.axis = axis;
  d.node.attr.keepdim = keepdim;
  return finish(b, &d);
}

Node *build_softmax(Builder *b, OpKind op, Node *x, int32_t axis) { return build_reduce(b, op, x, axis, false); }

/* The bias moves up if there is no weight; has_weight and has_bias say which one an input is. */
Node *build_layer_norm(Builder *b, Node *x, Node *w, Node *bias, double eps) {
  Draft d = draft(OP_LAYER_NORM, 1u + (w != NULL) + (bias != NULL), x, w ? w : bias, w ? bias : NULL);
  d.node.attr.has_weight = w != NULL;
  d.node.attr.has_bias = bias != NULL;
  d.node.attr.eps = eps;
  return finish(b, &d);
}

Node *build_rms_norm(Builder *b, Node *x, Node *w, double eps) {
  Draft d = draft(OP_RMS_NORM, 1u + (w != NULL), x, w, NULL);
  d.node.attr.has_weight = w != NULL;
  d.node.attr.eps = eps;
  return finish(b, &d);
}

// ---- positions ----

Node *build_sinusoid(Builder *b, Node *pos, int64_t width, double base, bool interleaved) {
  Draft d = draft(OP_SINUSOID, 1, pos, NULL, NULL);
  CHECK(pos->rank < MAX_RANK, "sinusoid of rank %u", pos->rank + 1u);
  shape(&d, DTYPE_F32, pos->rank, (const Size *const *)pos->dims);
  d.node.dims[d.node.rank++] = size_const(b->graph->sizes, width);
  d.node.attr.base = base;
  d.node.attr.interleaved = interleaved;
  return finish(b, &d);
}

Node *build_rotary(Builder *b, Node *x, Node *pos, double base, bool interleaved) {
  Draft d = draft(OP_ROTARY, 2, x, pos, NULL);
  d.node.attr.base = base;
  d.node.attr.interleaved = interleaved;
  return finish(b, &d);
}

// ---- products ----

Node *build_matmul(Builder *b, Node *x, Node *y) {
  Draft d = draft(OP_MATMUL, 2, x, y, NULL);
  return finish(b, &d);
}

Node *build_linear(Builder *b, Node *x, Node *w) {
  Draft d = draft(OP_LINEAR, 2, x, w, NULL);
  return finish(b, &d);
}

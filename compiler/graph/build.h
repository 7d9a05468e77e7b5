/* Build: one function per operation that makes a node with the shape and type of its result.
 *
 * In: operands that are valid: elaborate has checked them and reported with the words of the language, and what is read
 * from text goes through verify. Out: the node, at the end of the graph or before `b->before`. Where two sizes must be
 * equal but are different polynomials, the result has the first that is no constant, and the caller adds the check that
 * each run must pass. */
#ifndef TFM_GRAPH_BUILD_H
#define TFM_GRAPH_BUILD_H

#include "graph/graph.h"

typedef struct Builder {
  Graph *graph;
  Node *before;  /* NULL: at the end */
  Origin origin; /* of the nodes that are made */
} Builder;

Node *build_input(Builder *b, const char *name, DType dtype, uint32_t rank, const Size *const *dims);
/* f32; becomes the entry of that name in graph->declared_weights. */
Node *build_weight(Builder *b, const char *name, uint32_t rank, const Size *const *dims);
Node *build_full(Builder *b, double number, uint32_t rank, const Size *const *dims);      /* f32 */
Node *build_filled(Builder *b, DType dtype, int64_t number, uint32_t rank, const Size *const *dims);
Node *build_scalar(Builder *b, DType dtype, double number, int64_t integer);              /* rank 0 FULL */
Node *build_size(Builder *b, DType dtype, const Size *size);                              /* rank 0, f32 or i32 */
Node *build_positions(Builder *b, const Size *n);
Node *build_causal_mask(Builder *b, const Size *q, const Size *k);
Node *build_unary(Builder *b, OpKind op, Node *x);
Node *build_binary(Builder *b, OpKind op, Node *x, Node *y);
Node *build_where(Builder *b, Node *condition, Node *x, Node *y);
Node *build_slice(Builder *b, Node *x, const Size *const *starts, const Size *const *dims);
Node *build_reshape(Builder *b, Node *x, uint32_t rank, const Size *const *dims);
Node *build_permute(Builder *b, Node *x, const uint8_t *axes);
Node *build_transpose(Builder *b, Node *x, uint32_t i, uint32_t j);
Node *build_concat(Builder *b, uint32_t n, Node *const *xs, int32_t axis);
Node *build_gather(Builder *b, Node *table, Node *ids);
Node *build_take(Builder *b, Node *x, Node *ids, int32_t axis);
/* Every `step`th element of the axis, `dim` of them. */
Node *build_every(Builder *b, Node *x, int64_t step, int32_t axis, const Size *dim);
Node *build_cumsum(Builder *b, Node *x, int32_t axis);
Node *build_shift(Builder *b, Node *x, int64_t n, int32_t axis);
/* decay, beta: may be NULL. */
Node *build_linear_attention(Builder *b, Node *const *qkv, Node *decay, Node *beta);
Node *build_linear_attention_state(Builder *b, Node *of);
/* What q gets if the result of the linear_attention y gets g; LINEAR_ATTENTION_GRAD_K ..._BETA: what others get. */
Node *build_linear_attention_grad(Builder *b, const Node *y, Node *g);
Node *build_linear_attention_grad_part(Builder *b, OpKind part, Node *grad);
/* Without sums (NULL): of n rows of zeros. */
Node *build_scatter(Builder *b, Node *x, Node *ids, Node *sums, const Size *n);
Node *build_topk(Builder *b, Node *x, int64_t k, int32_t axis);
Node *build_places(Builder *b, OpKind op, Node *x, int32_t axis);               /* PLACES BEFORE */
Node *build_reduce(Builder *b, OpKind op, Node *x, int32_t axis, bool keepdim); /* SUM MEAN MAX MIN ARGMAX */
Node *build_softmax(Builder *b, OpKind op, Node *x, int32_t axis);              /* SOFTMAX LOG_SOFTMAX */
Node *build_layer_norm(Builder *b, Node *x, Node *w, Node *bias, double eps);   /* w, bias may be NULL */
Node *build_rms_norm(Builder *b, Node *x, Node *w, double eps);                 /* w may be NULL */
Node *build_sinusoid(Builder *b, Node *pos, int64_t d, double base, bool interleaved);
Node *build_rotary(Builder *b, Node *x, Node *pos, double base, bool interleaved);
Node *build_matmul(Builder *b, Node *x, Node *y);
Node *build_linear(Builder *b, Node *x, Node *w);

#endif

/* What eval_sums.c takes of eval_products.c. A part of eval_run.h's room.
 *
 * In: tensors whose shapes fit. Out: `out`, which has its memory. Refuses nothing. */
#ifndef TFM_GRAPH_EVAL_PRODUCTS_H
#define TFM_GRAPH_EVAL_PRODUCTS_H

#include "graph/eval/eval_run.h"

/* Dim i from the end, 1 being the last. */
static inline int64_t from_last(const Tensor *x, uint32_t i) { return x->dims[x->rank - i]; }
/* Strides of x over the axes of `out` before the last two. */
void lead_strides(const Tensor *x, const Tensor *out, int64_t *strides);
/* Whether these are the probabilities of a softmax, perhaps seen through views. */
bool is_probabilities(const Node *node);

/* x yT for each index of the axes before the last two, which broadcast: queries times keys, which stand in rows. */
void matmul_transposed(const Tensor *x, const Tensor *y, Tensor *out);
/* x wT of a LINEAR: in f32; in whole numbers, by the form of the node. */
void linear_product(const EvalNode *in, Tensor *out);
void int8_product(const EvalNode *in, Tensor *out);
/* The products of an attention in whole numbers: x yT, weights times values, and either of them while they are MATMULs,
 * where keys stand in columns. */
void int8_scores(const Tensor *x, const Tensor *y, Tensor *out);
void int8_values(const Tensor *weights, const Tensor *v, Tensor *out);
void int8_matrix_product(const EvalNode *in, Tensor *out);

#endif

/* In: matrices. Out: products, each element summed in double with k ascending and rounded once. Loops are arranged so
 * that several sums are under way at a time; no sum is split. Where the left operand of a product is a softmax, a
 * weight of exactly 0 contributes 0 whatever stands on the right. */
#include <stdlib.h>
#include <string.h>

#include "graph/eval_run.h"

enum { ROWS = 8 }; /* of x that go over y together */

static void multiply(int64_t m, int64_t k, int64_t n, const float *x, const float *y, bool skip_zeros, double *sums,
                     float *out) {
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) sums[j] = 0;
    for (int64_t l = 0; l < k; l++) {
      double factor = (double)x[i * k + l];
      if (skip_zeros && factor == 0) continue;
      for (int64_t j = 0; j < n; j++) sums[j] += factor * (double)y[l * n + j];
    }
    for (int64_t j = 0; j < n; j++) out[i * n + j] = (float)sums[j];
  }
}

/* Up to ROWS rows of x with each row of y. */
static void multiply_transposed(int64_t m, int64_t k, int64_t n, const float *x, const float *y, float *out) {
  for (int64_t begin = 0; begin < m; begin += ROWS) {
    int64_t rows = m - begin < ROWS ? m - begin : ROWS;
    for (int64_t j = 0; j < n; j++) {
      double sums[ROWS] = {0};
      for (int64_t l = 0; l < k; l++) {
        double factor = (double)y[j * k + l];
        for (int64_t i = 0; i < rows; i++) sums[i] += (double)x[(begin + i) * k + l] * factor;
      }
      for (int64_t i = 0; i < rows; i++) out[(begin + i) * n + j] = (float)sums[i];
    }
  }
}

static int64_t from_last(const Tensor *x, uint32_t i) { return x->dims[x->rank - i]; }

/* Strides of x over the axes of `out` before the last two. */
static void lead_strides(const Tensor *x, const Tensor *out, int64_t *strides) {
  broadcast_strides(x->rank - 2, x->dims, from_last(x, 1) * from_last(x, 2), out->rank - 2, strides);
}

void matmul_tensor(const Tensor *x, const Tensor *y, bool skip_zeros, Tensor *out) {
  int64_t m = from_last(out, 2), n = from_last(out, 1), k = from_last(x, 1), of_x[MAX_RANK], of_y[MAX_RANK];
  lead_strides(x, out, of_x);
  lead_strides(y, out, of_y);
  double *sums = malloc(((size_t)n + 1) * sizeof *sums);
  if (!sums) out_of_memory();
  Grid lead = grid_of(out->rank - 2, out->dims);
  for (int64_t i = 0; i < lead.points; i++, grid_next(&lead)) {
    multiply(m, k, n, (const float *)x->data + grid_offset(&lead, of_x), (const float *)y->data + grid_offset(&lead, of_y),
             skip_zeros, sums, (float *)out->data + i * m * n);
  }
  free(sums);
}

void matmul_transposed(const Tensor *x, const Tensor *y, Tensor *out) {
  int64_t m = from_last(out, 2), n = from_last(out, 1), of_x[MAX_RANK], of_y[MAX_RANK];
  lead_strides(x, out, of_x);
  lead_strides(y, out, of_y);
  Grid lead = grid_of(out->rank - 2, out->dims);
  for (int64_t i = 0; i < lead.points; i++, grid_next(&lead)) {
    multiply_transposed(m, from_last(x, 1), n, (const float *)x->data + grid_offset(&lead, of_x),
                        (const float *)y->data + grid_offset(&lead, of_y), (float *)out->data + i * m * n);
  }
}

/* Whether these are the probabilities of a softmax, perhaps seen through views. */
static bool is_softmax(const Node *node) {
  while (op_table[node->op].category == CATEGORY_VIEW) node = node->inputs.items[0];
  return node->op == OP_SOFTMAX || node->op == OP_ATTENTION_WEIGHTS ||
         (node->op == OP_REDUCE && node->attr.reduction == OP_SOFTMAX);
}

/* Computes acc straight into the result, or beside it if an expression follows. */
static bool with_epilogue(const EvalNode *in, Tensor *out, void (*product)(const EvalNode *, Tensor *)) {
  if (!in->node->attr.expr) {
    product(in, out);
    return true;
  }
  Tensor acc = *out;
  acc.dtype = DTYPE_F32;
  if (!eval_allocate(in->run, in->node, &acc)) return false;
  product(in, &acc);
  bool ok = eval_expr(in, &acc, out);
  free(acc.data);
  return ok;
}

static void matrix_product(const EvalNode *in, Tensor *out) {
  matmul_tensor(in->inputs[0], in->inputs[1], is_softmax(in->node->inputs.items[0]), out);
}

bool eval_matmul(const EvalNode *in, Tensor *out) { return with_epilogue(in, out, matrix_product); }

static void linear_product(const EvalNode *in, Tensor *out) {
  const Tensor *x = in->inputs[0], *w = in->inputs[1];
  int64_t k = w->dims[1], m = 1;
  for (uint32_t i = 0; i + 1 < x->rank; i++) m *= x->dims[i];
  multiply_transposed(m, k, w->dims[0], x->data, w->data, out->data);
}

bool eval_linear(const EvalNode *in, Tensor *out) { return with_epilogue(in, out, linear_product); }

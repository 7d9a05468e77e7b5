/* Products of rows with rows, x yT, and products of whole numbers: linear, and attention in 8 bits.
 *
 * In: f32 tensors. Out: sums in double, in the order of the index, rounded to f32 once. Whole numbers are f32 here;
 * their sums are exact, and multiplied by one scale after the other. See eval_products.h. */
#include "graph/eval/eval_products.h"

#include <stdlib.h>
#include <string.h>

#include "forms/form.h"
#include "forms/rotate.h"
#include "forms/whole_rows.h"

enum { ROWS = 8 }; /* of x that go over y together */

/* x yT: up to ROWS rows of x with each row of y, which stays in the cache for them. */
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

void lead_strides(const Tensor *x, const Tensor *out, int64_t *strides) {
  broadcast_strides(x->rank - 2, x->dims, from_last(x, 1) * from_last(x, 2), out->rank - 2, strides);
}

/* x yT: queries times keys, which stand in rows. */
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

bool is_probabilities(const Node *node) {
  node = node_behind_views(node);
  return node->op == OP_SOFTMAX || node->op == OP_ATTENTION_WEIGHTS ||
         (node->op == OP_REDUCE && node->attr.reduction == OP_SOFTMAX);
}

/* All axes of x but the last are rows of one matrix. */
void linear_product(const EvalNode *in, Tensor *out) {
  const Tensor *x = in->inputs[0], *w = in->inputs[1];
  int64_t k = w->dims[1], m = 1;
  for (uint32_t i = 0; i + 1 < x->rank; i++) m *= x->dims[i];
  multiply_transposed(m, k, w->dims[0], x->data, w->data, out->data);
}

// ---- rows as whole numbers ----

typedef struct Rows { /* what becomes whole numbers */
  tfm_form weight; /* rows of a weight in this form; F32: of something else */
  bool is_rotated; /* these are rotated first */
} Rows;

static const Rows ROTATED = {TFM_FORM_F32, true}, AS_THEY_ARE = {TFM_FORM_F32, false};

static float round_row(Rows kind, float *row, int64_t k, int8_t *q) {
  if (kind.weight != TFM_FORM_F32) return form_whole_row(kind.weight, row, k, q);
  if (kind.is_rotated) rotate_row(row, k);
  return whole_round(row, k, q);
}

/* The rows of x as whole numbers, which are f32 here, and their scales. Returns memory to be freed. */
static float *whole_rows(const Tensor *x, int64_t k, Rows kind, float *scales) {
  const int64_t n = tensor_elements(x), rows = k ? n / k : 0;
  float *whole = malloc((size_t)(n + 1) * sizeof *whole);
  int8_t *q = malloc((size_t)k + 1);
  if (!whole || !q) out_of_memory("for whole numbers of a product", (size_t)(n + k + 1) * sizeof *whole);
  if (n) memcpy(whole, x->data, (size_t)n * sizeof *whole);
  for (int64_t i = 0; i < rows; i++) {
    scales[i] = round_row(kind, whole + i * k, k, q);
    for (int64_t j = 0; j < k; j++) whole[i * k + j] = q[j];
  }
  free(q);
  return whole;
}

static float *numbers(int64_t n) {
  float *memory = calloc((size_t)n + 1, sizeof *memory);
  if (!memory) out_of_memory("for scales of a product", (size_t)n * sizeof *memory);
  return memory;
}

/* x times rows of w as their form holds them. */
static void rounded_product(const EvalNode *in, Tensor *out) {
  const int64_t n = tensor_elements(in->inputs[1]), k = in->inputs[1]->dims[1];
  Tensor w = *in->inputs[1];
  w.data = numbers(n);
  if (n) memcpy(w.data, in->inputs[1]->data, (size_t)n * sizeof(float));
  for (int64_t i = 0; i < n; i += k) form_table[in->node->attr.form].round((float *)w.data + i, k, NULL);
  EvalNode with_w = *in;
  with_w.inputs = (const Tensor *[]){in->inputs[0], &w};
  linear_product(&with_w, out);
  free(w.data);
}

/* Group after group, of whole numbers; what each gives is scaled and added in f32 (tfm/abi/form_mxfp4a8.h,
 * form_q4.h). */
static void mixed_product(const EvalNode *in, Tensor *out) {
  const Tensor *x = in->inputs[0], *w = in->inputs[1];
  const int64_t k = w->dims[1], n = w->dims[0], m = n ? tensor_elements(out) / n : 0;
  float *rows = numbers(m * TFM_GROUP), *scales = numbers(m), *to = out->data;
  for (int64_t i = 0; i < m * n; i++) to[i] = 0;
  for (int64_t at = 0; at < k; at += TFM_GROUP) {
    for (int64_t i = 0; i < m; i++) {
      int8_t q[TFM_GROUP];
      scales[i] = form_mixed_group((const float *)x->data + i * k + at, q);
      for (int j = 0; j < TFM_GROUP; j++) rows[i * TFM_GROUP + j] = q[j];
    }
    for (int64_t c = 0; c < n; c++) {
      int8_t numbers_of_w[TFM_GROUP];
      const float factor = form_mixed_numbers(in->node->attr.form, (const float *)w->data + c * k, at, numbers_of_w);
      for (int64_t i = 0; i < m; i++) {
        float sum = 0; /* exact: at most 32 * 127 * 16 */
        for (int j = 0; j < TFM_GROUP; j++) sum += rows[i * TFM_GROUP + j] * numbers_of_w[j];
        to[i * n + c] += sum * scales[i] * factor;
      }
    }
  }
  free(rows), free(scales);
}

/* Sums of whole numbers are exact in double, rounded to f32 once, and scaled by one factor after the other. */
void int8_product(const EvalNode *in, Tensor *out) {
  if (!tfm_form_is_integer(in->node->attr.form)) {
    (tfm_form_is_mixed(in->node->attr.form) ? mixed_product : rounded_product)(in, out);
    return;
  }
  const Tensor *x = in->inputs[0], *w = in->inputs[1];
  const int64_t k = w->dims[1], n = w->dims[0], m = n ? tensor_elements(out) / n : 0;
  float *x_scales = numbers(m), *w_scales = numbers(n), *to = out->data;
  const Rows of_weight = {in->node->attr.form, true};
  float *rows = whole_rows(x, k, ROTATED, x_scales), *weights = whole_rows(w, k, of_weight, w_scales);
  multiply_transposed(m, k, n, rows, weights, to);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) to[i * n + j] = to[i * n + j] * x_scales[i] * w_scales[j];
  free(x_scales), free(w_scales), free(rows), free(weights);
}

// ---- attention in whole numbers ----

/* x yT of rows that are rounded as they are: the scores of an attention. */
void int8_scores(const Tensor *x, const Tensor *y, Tensor *out) {
  const int64_t m = from_last(out, 2), n = from_last(out, 1), k = from_last(x, 1);
  int64_t of_x[MAX_RANK], of_y[MAX_RANK];
  float *x_scales = numbers(tensor_elements(x) / k), *y_scales = numbers(tensor_elements(y) / k);
  float *rows = whole_rows(x, k, AS_THEY_ARE, x_scales), *keys = whole_rows(y, k, AS_THEY_ARE, y_scales);
  lead_strides(x, out, of_x);
  lead_strides(y, out, of_y);
  Grid lead = grid_of(out->rank - 2, out->dims);
  for (int64_t l = 0; l < lead.points; l++, grid_next(&lead)) {
    const int64_t left = grid_offset(&lead, of_x), right = grid_offset(&lead, of_y);
    float *to = (float *)out->data + l * m * n;
    multiply_transposed(m, k, n, rows + left, keys + right, to);
    for (int64_t i = 0; i < m * n; i++) to[i] = to[i] * x_scales[left / k + i / n] * y_scales[right / k + i % n];
  }
  free(x_scales), free(y_scales), free(rows), free(keys);
}

enum { KEY_BLOCK = 512 }; /* keys whose weights have one scale */

typedef struct ValueBlock { /* of n keys: rows of whole numbers, with a scale each */
  const float *values, *scales;
  int64_t n, columns;
  bool is_first; /* nothing is in the result yet */
} ValueBlock;

/* One row of weights times a block of values. The weights take up the scales, are rounded, and have one scale
 * themselves. */
static void add_int8_values(const float *weights, const ValueBlock *block, float *out) {
  const int64_t n = block->n, columns = block->columns;
  float scaled[KEY_BLOCK], scale;
  for (int64_t j = 0; j < n; j++) scaled[j] = weights[j] == 0 ? 0 : weights[j] * block->scales[j];
  const float factor = whole_factor(scaled, n, WHOLE_MOST_WEIGHT, &scale);
  for (int64_t c = 0; c < columns; c++) {
    double total = 0;
    for (int64_t j = 0; j < n; j++)
      total += (double)whole_nearest(scaled[j], factor) * (double)block->values[j * columns + c];
    const float part = (float)total * scale;
    out[c] = block->is_first ? part : out[c] + part;
  }
}

/* Weights of a softmax times values. */
void int8_values(const Tensor *weights, const Tensor *v, Tensor *out) {
  const int64_t m = from_last(out, 2), e = from_last(out, 1), s = from_last(weights, 1);
  int64_t of_weights[MAX_RANK], of_v[MAX_RANK];
  float *scales = numbers(tensor_elements(v) / e), *values = whole_rows(v, e, AS_THEY_ARE, scales);
  lead_strides(weights, out, of_weights);
  lead_strides(v, out, of_v);
  Grid lead = grid_of(out->rank - 2, out->dims);
  for (int64_t l = 0; l < lead.points; l++, grid_next(&lead)) {
    const float *from = (const float *)weights->data + grid_offset(&lead, of_weights);
    const int64_t first = grid_offset(&lead, of_v);
    for (int64_t i = 0; i < m; i++) {
      float *to = (float *)out->data + (l * m + i) * e;
      for (int64_t c = 0; c < e; c++) to[c] = 0;
      for (int64_t key = 0; key < s; key += KEY_BLOCK) {
        const ValueBlock block = {.values = values + first + key * e,
                                  .scales = scales + first / e + key,
                                  .n = s - key < KEY_BLOCK ? s - key : KEY_BLOCK,
                                  .columns = e,
                                  .is_first = key == 0};
        add_int8_values(from + i * s + key, &block, to);
      }
    }
  }
  free(scales), free(values);
}

/* Either product of an attention that is not fused yet. Keys stand in columns here. */
void int8_matrix_product(const EvalNode *in, Tensor *out) {
  const Tensor *x = in->inputs[0], *y = in->inputs[1];
  if (is_probabilities(in->node->inputs.items[0])) {
    int8_values(x, y, out);
    return;
  }
  const int64_t k = from_last(y, 2), n = from_last(y, 1), elements = tensor_elements(y);
  Tensor turned = *y;
  turned.dims[y->rank - 2] = n;
  turned.dims[y->rank - 1] = k;
  turned.data = numbers(elements);
  for (int64_t i = 0; i < elements; i++)
    ((float *)turned.data)[i / (k * n) * k * n + i % n * k + i / n % k] = ((const float *)y->data)[i];
  int8_scores(x, &turned, out);
  free(turned.data);
}

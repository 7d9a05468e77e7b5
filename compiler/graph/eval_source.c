/* In: sizes and positions. Out: constants, positions, masks, and what depends on angles. Angles, sines and cosines are
 * computed in double: f32 angles would be off by 1e-4 at position 5000. */
#include <math.h>
#include <string.h>

#include "graph/eval_run.h"

static void fill(Tensor *out, double number, int64_t integer) {
  int64_t n = tensor_elements(out);
  for (int64_t i = 0; i < n; i++) {
    if (out->dtype == DTYPE_F32) ((float *)out->data)[i] = (float)number;
    else if (out->dtype == DTYPE_I32) ((int32_t *)out->data)[i] = (int32_t)integer;
    else ((uint8_t *)out->data)[i] = integer != 0;
  }
}

bool eval_full(const EvalNode *in, Tensor *out) {
  fill(out, in->node->attr.number, in->node->attr.integer);
  return true;
}

bool eval_size_node(const EvalNode *in, Tensor *out) {
  int64_t value = eval_size(in->run, in->node->attr.size);
  if (out->dtype == DTYPE_I32 && value != (int32_t)value) {
    return eval_fault(in, DIAG_RUN_CHECK, "the size %lld is no i32", (long long)value);
  }
  fill(out, (double)value, value);
  return true;
}

bool eval_positions(const EvalNode *in, Tensor *out) {
  (void)in;
  for (int64_t i = 0; i < out->dims[0]; i++) ((int32_t *)out->data)[i] = (int32_t)i;
  return true;
}

bool eval_causal_mask(const EvalNode *in, Tensor *out) {
  (void)in;
  for (int64_t q = 0; q < out->dims[0]; q++) {
    for (int64_t k = 0; k < out->dims[1]; k++) ((uint8_t *)out->data)[q * out->dims[1] + k] = k > q;
  }
  return true;
}

static double position(const Tensor *pos, int64_t i) {
  return pos->dtype == DTYPE_F32 ? (double)((const float *)pos->data)[i] : ((const int32_t *)pos->data)[i];
}

bool eval_sinusoid(const EvalNode *in, Tensor *out) {
  int64_t width = out->dims[out->rank - 1], n_sines = (width + 1) / 2, n = tensor_elements(in->inputs[0]);
  bool interleaved = in->node->attr.interleaved;
  for (int64_t row = 0; row < n; row++) {
    float *to = (float *)out->data + row * width;
    for (int64_t i = 0; i < n_sines; i++) {
      double rate = exp(-2.0 * (double)i / (double)width * log(in->node->attr.base));
      double angle = position(in->inputs[0], row) * rate;
      to[interleaved ? 2 * i : i] = (float)sin(angle);
      if (i < width / 2) to[interleaved ? 2 * i + 1 : n_sines + i] = (float)cos(angle);
    }
  }
  return true;
}

static double rotary_angle(double base, double pos, int64_t i, int64_t width) {
  return pos * pow(base, -2.0 * (double)i / (double)width);
}

static void rotate_pair(const float *x, float *to, int64_t first, int64_t second, double angle) {
  double sine = (double)(float)sin(angle), cosine = (double)(float)cos(angle);
  double a = (double)x[first], b = (double)x[second];
  to[first] = (float)(a * cosine - b * sine);
  to[second] = (float)(b * cosine + a * sine);
}

bool eval_rotary(const EvalNode *in, Tensor *out) {
  const Tensor *x = in->inputs[0], *pos = in->inputs[1];
  int64_t width = x->dims[x->rank - 1], half = width / 2, strides[MAX_RANK];
  Grid rows = grid_of(x->rank - 1, x->dims);
  broadcast_strides(pos->rank, pos->dims, 1, rows.rank, strides);
  for (int64_t row = 0; row < rows.points; row++, grid_next(&rows)) {
    double at = position(pos, grid_offset(&rows, strides));
    for (int64_t i = 0; i < half; i++) {
      bool interleaved = in->node->attr.interleaved;
      rotate_pair((const float *)x->data + row * width, (float *)out->data + row * width, interleaved ? 2 * i : i,
                  interleaved ? 2 * i + 1 : i + half, rotary_angle(in->node->attr.base, at, i, width));
    }
  }
  return true;
}

bool eval_rotary_table(const EvalNode *in, Tensor *out) {
  int64_t half = out->dims[out->rank - 1], n = tensor_elements(in->inputs[0]);
  for (int64_t row = 0; row < n; row++) {
    float *to = (float *)out->data + row * 2 * half;
    for (int64_t i = 0; i < half; i++) {
      double angle = rotary_angle(in->node->attr.base, position(in->inputs[0], row), i, 2 * half);
      to[i] = (float)cos(angle);
      to[half + i] = (float)sin(angle);
    }
  }
  return true;
}

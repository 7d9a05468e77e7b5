/* In: f32 tensors. Out: reductions along one axis and norms over the last, summed in double in order of the index.
 * NaN wins in max, min and argmax; a row of -inf gives zeros in softmax, NaN in log_softmax. Over no elements: sum 0,
 * mean NaN, max -inf, min inf, argmax 0. */
#include <math.h>
#include <string.h>

#include "graph/eval_run.h"

/* n elements, `stride` apart. */
typedef struct Line {
  const float *data;
  int64_t n, stride;
} Line;

static double at(Line x, int64_t i) { return (double)x.data[i * x.stride]; }

static double sum(Line x) {
  double total = 0;
  for (int64_t i = 0; i < x.n; i++) total += at(x, i);
  return total;
}

/* The index of the extreme element, the lowest of equal ones, the first NaN if there is one; -1 of nothing. */
static int64_t extreme(Line x, double sign) {
  int64_t best = x.n ? 0 : -1;
  for (int64_t i = 0; i < x.n; i++) {
    if (isnan(at(x, i))) return i;
    if (sign * at(x, i) > sign * at(x, best)) best = i;
  }
  return best;
}

static double extreme_value(Line x, double sign) {
  int64_t i = extreme(x, sign);
  return i < 0 ? -sign * (double)INFINITY : at(x, i);
}

static void softmax(Line x, bool logarithm, float *out) {
  double max = extreme_value(x, 1), total = 0;
  bool masked = max == -(double)INFINITY;
  for (int64_t i = 0; i < x.n; i++) total += exp(at(x, i) - max);
  for (int64_t i = 0; i < x.n; i++) {
    double shifted = at(x, i) - max;
    out[i * x.stride] = (float)(logarithm ? shifted - log(total) : masked ? 0 : exp(shifted) / total);
  }
}

/* `out` is where the result of the line, or its first element, goes. */
static void reduce_line(OpKind reduction, Line x, void *out) {
  float *to = out;
  switch (reduction) {
    case OP_SUM: *to = (float)sum(x); break;
    case OP_MEAN: *to = (float)(sum(x) / (double)x.n); break;
    case OP_MAX: *to = (float)extreme_value(x, 1); break;
    case OP_MIN: *to = (float)extreme_value(x, -1); break;
    case OP_ARGMAX: *(int32_t *)out = x.n ? (int32_t)extreme(x, 1) : 0; break;
    default: softmax(x, reduction == OP_LOG_SOFTMAX, to); break;
  }
}

void reduce_tensor(OpKind reduction, uint32_t axis, const Tensor *x, Tensor *out) {
  int64_t outer = 1, inner = 1, n = x->dims[axis];
  for (uint32_t i = 0; i < axis; i++) outer *= x->dims[i];
  for (uint32_t i = axis + 1; i < x->rank; i++) inner *= x->dims[i];
  bool keeps_shape = reduction == OP_SOFTMAX || reduction == OP_LOG_SOFTMAX;
  for (int64_t i = 0; i < outer; i++) {
    for (int64_t j = 0; j < inner; j++) {
      Line line = {(const float *)x->data + i * n * inner + j, n, inner};
      /* f32 and i32 results both have 4 bytes */
      reduce_line(reduction, line, (float *)out->data + (keeps_shape ? i * n * inner + j : i * inner + j));
    }
  }
}

bool eval_reduce(const EvalNode *in, Tensor *out) {
  reduce_tensor(in->node->op, (uint32_t)in->node->attr.axis, in->inputs[0], out);
  return true;
}

static void norm_row(OpKind norm, double eps, Line x, const float *w, const float *b, float *out) {
  double mean = norm == OP_LAYER_NORM ? sum(x) / (double)x.n : 0, squares = 0;
  for (int64_t i = 0; i < x.n; i++) squares += (at(x, i) - mean) * (at(x, i) - mean);
  double scale = 1 / sqrt(squares / (double)x.n + eps);
  for (int64_t i = 0; i < x.n; i++) {
    out[i] = (float)((at(x, i) - mean) * scale * (w ? (double)w[i] : 1) + (b ? (double)b[i] : 0));
  }
}

void norm_tensor(OpKind norm, double eps, const Tensor *x, const Tensor *w, const Tensor *b, Tensor *out) {
  int64_t n = x->dims[x->rank - 1];
  for (int64_t i = 0; n && i < tensor_elements(x); i += n) {
    norm_row(norm, eps, (Line){(const float *)x->data + i, n, 1}, w ? w->data : NULL, b ? b->data : NULL,
             (float *)out->data + i);
  }
}

bool eval_norm(const EvalNode *in, Tensor *out) {
  const NodeAttr *attr = &in->node->attr;
  norm_tensor(in->node->op, attr->eps, in->inputs[0], attr->has_weight ? in->inputs[1] : NULL,
              attr->has_bias ? in->inputs[attr->has_weight ? 2 : 1] : NULL, out);
  return true;
}

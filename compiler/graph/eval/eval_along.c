/* Operations that select or add up along one axis, by their definitions, gradients of norms, and powers.
 *
 * In: tensors. Out: elements picked by ids or by a step, or moved along; running sums, each addition rounded to f32 as
 * the language defines it; the indices of the greatest and of the true elements; powers in double, rounded once.
 * Refused: ids beyond the axis. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/eval/eval_run.h"
#include "tfm/abi/double_functions.h"

/* Strides of `x` in the domain of `out`, whose axis `axis` is walked by the caller: 0 along it. Returns the stride
 * along the axis. */
static int64_t strides_beside(const Tensor *x, uint32_t axis, int64_t *strides) {
  int64_t own = 1;
  for (uint32_t i = axis + 1; i < x->rank; i++) own *= x->dims[i];
  broadcast_strides(x->rank, x->dims, 1, x->rank, strides);
  strides[axis] = 0;
  return own;
}

/* The lines of `out` along the axis: a grid with a 1 in its place. */
static Grid lines_of(const Tensor *out, uint32_t axis) {
  int64_t dims[MAX_RANK];
  memcpy(dims, out->dims, sizeof dims);
  dims[axis] = 1;
  return grid_of(out->rank, dims);
}

bool eval_take(const EvalNode *in, Tensor *out) {
  const Tensor *x = in->inputs[0], *ids = in->inputs[1];
  uint32_t axis = (uint32_t)in->node->attr.axis;
  int64_t from[MAX_RANK], which[MAX_RANK], to[MAX_RANK];
  int64_t step = strides_beside(x, axis, from), next = strides_beside(ids, axis, which);
  int64_t place = strides_beside(out, axis, to);
  size_t bytes = dtype_bytes[x->dtype];
  Grid lines = lines_of(out, axis);
  for (int64_t line = 0; line < lines.points; line++, grid_next(&lines)) {
    int64_t x_at = grid_offset(&lines, from), id_at = grid_offset(&lines, which), out_at = grid_offset(&lines, to);
    for (int64_t i = 0; i < out->dims[axis]; i++) {
      int32_t id = ((const int32_t *)ids->data)[id_at + i * next];
      if (id < 0 || id >= x->dims[axis]) {
        return eval_fault(in, DIAG_INPUT_VALUE, "id %d is not in [0, %lld)", id, (long long)x->dims[axis]);
      }
      memcpy((char *)out->data + (size_t)(out_at + i * place) * bytes,
             (const char *)x->data + (size_t)(x_at + id * step) * bytes, bytes);
    }
  }
  return true;
}

bool eval_every(const EvalNode *in, Tensor *out) {
  const Tensor *x = in->inputs[0];
  uint32_t axis = (uint32_t)in->node->attr.axis;
  int64_t from[MAX_RANK], step = strides_beside(x, axis, from) * eval_size(in->run, in->node->attr.size);
  from[axis] = step;
  size_t bytes = dtype_bytes[x->dtype];
  Grid grid = grid_of(out->rank, out->dims);
  for (int64_t i = 0; i < grid.points; i++, grid_next(&grid)) {
    memcpy((char *)out->data + (size_t)i * bytes, (const char *)x->data + (size_t)grid_offset(&grid, from) * bytes,
           bytes);
  }
  return true;
}

bool eval_shift(const EvalNode *in, Tensor *out) {
  const Tensor *x = in->inputs[0];
  const uint32_t axis = (uint32_t)in->node->attr.axis;
  const int64_t n = eval_size(in->run, in->node->attr.size), dim = out->dims[axis];
  int64_t strides[MAX_RANK];
  const int64_t step = strides_beside(x, axis, strides);
  const size_t bytes = dtype_bytes[x->dtype];
  Grid lines = lines_of(out, axis);
  for (int64_t line = 0; line < lines.points; line++, grid_next(&lines)) {
    const int64_t at = grid_offset(&lines, strides);
    for (int64_t i = 0; i < dim; i++) {
      char *to = (char *)out->data + (size_t)(at + i * step) * bytes;
      const bool is_there = n >= 0 ? n <= i : n > i - dim;
      if (is_there) memcpy(to, (const char *)x->data + (size_t)(at + (i - n) * step) * bytes, bytes);
      else memset(to, 0, bytes);
    }
  }
  return true;
}

bool eval_scatter(const EvalNode *in, Tensor *out) {
  const Tensor *x = in->inputs[0], *ids = in->inputs[1], *sums = in->node->inputs.n > 2 ? in->inputs[2] : NULL;
  const int64_t n = out->dims[0], width = out->dims[1];
  const size_t bytes = (size_t)tensor_elements(out) * sizeof(float);
  if (sums && bytes) memcpy(out->data, sums->data, bytes);
  if (!sums && bytes) memset(out->data, 0, bytes);
  for (int64_t i = 0; i < x->dims[0]; i++) {
    const int32_t id = ((const int32_t *)ids->data)[i];
    if (id < 0 || id >= n) return eval_fault(in, DIAG_INPUT_VALUE, "id %d is not in [0, %lld)", id, (long long)n);
    float *row = (float *)out->data + id * width;
    for (int64_t k = 0; k < width; k++) row[k] += ((const float *)x->data)[i * width + k];
  }
  return true;
}

/* The first sum is the first element itself: -0 stays -0. */
bool eval_cumsum(const EvalNode *in, Tensor *out) {
  const Tensor *x = in->inputs[0];
  uint32_t axis = (uint32_t)in->node->attr.axis;
  int64_t strides[MAX_RANK], step = strides_beside(x, axis, strides);
  Grid lines = lines_of(out, axis);
  for (int64_t line = 0; line < lines.points; line++, grid_next(&lines)) {
    int64_t at = grid_offset(&lines, strides);
    for (int64_t i = 0; i < out->dims[axis]; i++, at += step) {
      if (x->dtype == DTYPE_F32) {
        const float *values = x->data;
        float *sums = out->data;
        sums[at] = i ? sums[at - step] + values[at] : values[at];
      } else {
        const uint32_t *values = x->data;
        uint32_t *sums = out->data;
        sums[at] = i ? sums[at - step] + values[at] : values[at];
      }
    }
  }
  return true;
}

/* Whether element i stands before element j: greater, or as great and of a lower index. NaN is greater than all. */
static bool stands_before(const float *x, int64_t step, int32_t i, int32_t j) {
  float a = x[i * step], b = x[j * step];
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b) ? i < j : isnan(a) != 0;
  return a != b ? a > b : i < j;
}

/* The definition, one rank at a time: the first of those that come after the one before. */
static void top_of_line(const float *x, int64_t step, int32_t n, int32_t *ids, int64_t place, int64_t k) {
  for (int64_t rank = 0; rank < k; rank++) {
    int32_t best = -1, before = rank ? ids[(rank - 1) * place] : -1;
    for (int32_t i = 0; i < n; i++) {
      bool is_left = i != before && (before < 0 || stands_before(x, step, before, i));
      if (is_left && (best < 0 || stands_before(x, step, i, best))) best = i;
    }
    ids[rank * place] = best;
  }
}

bool eval_topk(const EvalNode *in, Tensor *out) {
  const Tensor *x = in->inputs[0];
  uint32_t axis = (uint32_t)in->node->attr.axis;
  int64_t from[MAX_RANK], to[MAX_RANK], step = strides_beside(x, axis, from), place = strides_beside(out, axis, to);
  if (x->dims[axis] > INT32_MAX) return eval_fault(in, DIAG_RUN_CHECK, "the indices do not fit an i32");
  Grid lines = lines_of(out, axis);
  for (int64_t line = 0; line < lines.points; line++, grid_next(&lines)) {
    top_of_line((const float *)x->data + grid_offset(&lines, from), step, (int32_t)x->dims[axis],
                (int32_t *)out->data + grid_offset(&lines, to), place, out->dims[axis]);
  }
  return true;
}

/* Of places, or of before: an index stands at as many places as there are indices before it. */
bool eval_places(const EvalNode *in, Tensor *out) {
  const Tensor *x = in->inputs[0];
  uint32_t axis = (uint32_t)in->node->attr.axis;
  int64_t strides[MAX_RANK], step = strides_beside(x, axis, strides), n = x->dims[axis];
  if (n > INT32_MAX) return eval_fault(in, DIAG_RUN_CHECK, "the indices do not fit an i32");
  Grid lines = lines_of(out, axis);
  for (int64_t line = 0; line < lines.points; line++, grid_next(&lines)) {
    const uint8_t *is_true = (const uint8_t *)x->data + grid_offset(&lines, strides);
    int32_t *to = (int32_t *)out->data + grid_offset(&lines, strides), before = 0, all = 0;
    for (int64_t i = 0; i < n; i++) all += is_true[i * step] != 0;
    for (int64_t i = 0; i < n; i++) {
      bool is_here = is_true[i * step] != 0;
      if (in->node->op == OP_BEFORE)
        to[i * step] = before;
      else
        to[(is_here ? before : all + (int32_t)i - before) * step] = (int32_t)i;
      before += is_here;
    }
  }
  return true;
}

bool eval_power(const EvalNode *in, Tensor *out) {
  int64_t strides[2][MAX_RANK];
  for (int i = 0; i < 2; i++) broadcast_strides(in->inputs[i]->rank, in->inputs[i]->dims, 1, out->rank, strides[i]);
  Grid grid = grid_of(out->rank, out->dims);
  for (int64_t i = 0; i < grid.points; i++, grid_next(&grid)) {
    float x = ((const float *)in->inputs[0]->data)[grid_offset(&grid, strides[0])];
    float y = ((const float *)in->inputs[1]->data)[grid_offset(&grid, strides[1])];
    ((float *)out->data)[i] = float_pow(x, y);
  }
  return true;
}

// ---- gradients by rows ----

typedef struct GradRow {
  int64_t n;
  const float *x, *w, *g; /* of log_softmax, x is its result */
  float *out, *second;    /* what x gets; what w gets, NULL: nobody asks */
} GradRow;

static void norm_grad_row(OpKind norm, double eps, GradRow row) {
  double mean = 0, squares = 0, sum = 0, product = 0;
  for (int64_t i = 0; norm == OP_LAYER_NORM && i < row.n; i++) mean += (double)row.x[i] / (double)row.n;
  for (int64_t i = 0; i < row.n; i++) squares += (row.x[i] - mean) * (row.x[i] - mean);
  const double r = 1 / sqrt(squares / (double)row.n + eps);
  for (int64_t i = 0; i < row.n; i++) {
    const double q = (double)row.g[i] * (row.w ? (double)row.w[i] : 1);
    sum += q;
    product += q * (row.x[i] - mean) * r;
  }
  if (norm == OP_RMS_NORM) sum = 0;
  for (int64_t i = 0; i < row.n; i++) {
    const double q = (double)row.g[i] * (row.w ? (double)row.w[i] : 1), h = (row.x[i] - mean) * r;
    row.out[i] = (float)(r * (q - sum / (double)row.n - h * product / (double)row.n));
    if (row.second) row.second[i] = (float)((double)row.g[i] * h);
  }
}

static void log_softmax_grad_row(GradRow row) {
  double sum = 0;
  for (int64_t i = 0; i < row.n; i++) sum += (double)row.g[i];
  for (int64_t i = 0; i < row.n; i++) row.out[i] = (float)((double)row.g[i] - double_exp((double)row.x[i]) * sum);
}

/* Memory for what w gets, kept for the nodes that read it until the run ends. False: there is no room for it. */
static bool second_result(const EvalNode *in, const Tensor *out, float **second) {
  *second = NULL;
  for (size_t i = 0; i < in->node->users.n; i++) {
    const Node *user = in->node->users.items[i];
    Tensor *kept = &in->run->probabilities[user->id];
    if (user->op != OP_ROW_GRAD_W) continue;
    if (!kept->data) {
      Tensor part = *out;
      if (!eval_allocate(in->run, in->node, &part)) return false;
      *kept = part;
    }
    *second = kept->data;
  }
  return true;
}

bool eval_row_grad(const EvalNode *in, Tensor *out) {
  const NodeAttr *attr = &in->node->attr;
  const size_t n = in->node->inputs.n;
  const float *w = attr->has_weight ? in->inputs[n - 1]->data : NULL, *x = in->inputs[n - 1 - attr->has_weight]->data;
  const int64_t columns = out->dims[out->rank - 1];
  Tensor g = *out;
  float *second;
  if (!second_result(in, out, &second) || !eval_allocate(in->run, in->node, &g)) return false;
  const bool ok = eval_expr(in, NULL, &g);
  for (int64_t i = 0; ok && columns && i < tensor_elements(out); i += columns) {
    const GradRow row = {columns, x + i, w, (const float *)g.data + i, (float *)out->data + i,
                         second ? second + i : NULL};
    if (attr->reduction == OP_LOG_SOFTMAX) log_softmax_grad_row(row);
    else norm_grad_row(attr->reduction, attr->eps, row);
  }
  Tensor of_w = *out;
  of_w.data = second;
  if (ok && second) eval_spoil_rows(in, &of_w);
  free(g.data);
  return ok;
}

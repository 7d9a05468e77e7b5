/* In: tensors. Out: the same elements in another shape or order, joined, or rows picked by ids. Everything is copied:
 * this is the plain definition, not the fast way. */
#include <string.h>

#include "graph/eval_run.h"

/* Copies the element at `base` plus strided indexes for every index of `out`. */
static void copy_strided(const Tensor *x, int64_t base, const int64_t *strides, Tensor *out) {
  size_t bytes = dtype_bytes[out->dtype];
  Grid grid = grid_of(out->rank, out->dims);
  for (int64_t i = 0; i < grid.points; i++, grid_next(&grid)) {
    const char *from = (const char *)x->data + (size_t)(base + grid_offset(&grid, strides)) * bytes;
    memcpy((char *)out->data + (size_t)i * bytes, from, bytes);
  }
}

static void plain_strides(const Tensor *x, int64_t *strides) {
  int64_t stride = 1;
  for (uint32_t i = x->rank; i > 0; i--) {
    strides[i - 1] = stride;
    stride *= x->dims[i - 1];
  }
}

bool eval_slice(const EvalNode *in, Tensor *out) {
  int64_t strides[MAX_RANK], base = 0;
  plain_strides(in->inputs[0], strides);
  for (uint32_t i = 0; i < out->rank; i++) base += eval_size(in->run, in->node->attr.starts[i]) * strides[i];
  copy_strided(in->inputs[0], base, strides, out);
  return true;
}

bool eval_reshape(const EvalNode *in, Tensor *out) {
  size_t bytes = (size_t)tensor_elements(out) * dtype_bytes[out->dtype];
  if (bytes) memcpy(out->data, in->inputs[0]->data, bytes);
  return true;
}

bool eval_permute(const EvalNode *in, Tensor *out) {
  int64_t own[MAX_RANK], strides[MAX_RANK];
  plain_strides(in->inputs[0], own);
  for (uint32_t i = 0; i < out->rank; i++) strides[i] = own[in->node->attr.axes[i]];
  copy_strided(in->inputs[0], 0, strides, out);
  return true;
}

bool eval_concat(const EvalNode *in, Tensor *out) {
  uint32_t axis = (uint32_t)in->node->attr.axis;
  size_t inner = dtype_bytes[out->dtype], outer = 1;
  for (uint32_t i = 0; i < out->rank; i++) *(i < axis ? &outer : &inner) *= i == axis ? 1u : (size_t)out->dims[i];
  char *to = out->data;
  for (size_t row = 0; row < outer; row++) {
    for (size_t i = 0; i < in->node->inputs.n; i++) {
      size_t bytes = inner * (size_t)in->inputs[i]->dims[axis];
      if (bytes) memcpy(to, (const char *)in->inputs[i]->data + row * bytes, bytes);
      to += bytes;
    }
  }
  return true;
}

bool eval_gather(const EvalNode *in, Tensor *out) {
  const Tensor *table = in->inputs[0], *ids = in->inputs[1];
  size_t bytes = dtype_bytes[table->dtype];
  for (uint32_t i = 1; i < table->rank; i++) bytes *= (size_t)table->dims[i];
  int64_t n = tensor_elements(ids);
  for (int64_t i = 0; i < n; i++) {
    int32_t id = ((const int32_t *)ids->data)[i];
    if (id < 0 || id >= table->dims[0]) {
      return eval_fault(in, DIAG_INPUT_VALUE, "id %d is not in [0, %lld)", id, (long long)table->dims[0]);
    }
    if (bytes) memcpy((char *)out->data + (size_t)i * bytes, (const char *)table->data + (size_t)id * bytes, bytes);
  }
  return true;
}

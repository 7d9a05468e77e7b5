/* Tensors for people: shape, range, first elements. */
#include <math.h>

#include "driver/outputs.h"
#include "weights/safetensors.h"

enum { MOST_ROWS = 8, MOST_COLUMNS = 8 };

void tensor_print_element(StrBuf *out, const Tensor *tensor, int64_t index) {
  if (tensor->dtype == DTYPE_F32) strbuf_printf(out, "%.6g", (double)((const float *)tensor->data)[index]);
  else if (tensor->dtype == DTYPE_I32) strbuf_printf(out, "%d", ((const int32_t *)tensor->data)[index]);
  else strbuf_add(out, ((const uint8_t *)tensor->data)[index] ? "true" : "false");
}

void tensor_print_place(StrBuf *out, const Tensor *tensor, int64_t index) {
  int64_t place[MAX_RANK];
  for (uint32_t axis = tensor->rank; axis-- > 0; index /= tensor->dims[axis]) place[axis] = index % tensor->dims[axis];
  print_dims(out, place, tensor->rank);
}

static void print_range(StrBuf *out, const Tensor *tensor) {
  const float *values = tensor->data;
  int64_t n = tensor_elements(tensor), odd = 0;
  float least = INFINITY, most = -INFINITY;
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    odd += !isfinite(values[i]);
    if (!isfinite(values[i])) continue;
    least = values[i] < least ? values[i] : least;
    most = values[i] > most ? values[i] : most;
    sum += (double)values[i];
  }
  if (n > odd)
    strbuf_printf(out, "  from %.6g to %.6g, mean %.6g", (double)least, (double)most, sum / (double)(n - odd));
  if (odd) strbuf_printf(out, "  %lld not finite", (long long)odd);
}

static void print_row(StrBuf *out, const Tensor *tensor, int64_t row, int64_t columns) {
  strbuf_add(out, " ");
  for (int64_t i = 0; i < columns && i < MOST_COLUMNS; i++) {
    strbuf_add_char(out, ' ');
    tensor_print_element(out, tensor, row * columns + i);
  }
  strbuf_add(out, columns > MOST_COLUMNS ? " ...\n" : "\n");
}

void tensor_print_summary(StrBuf *out, const char *name, const Tensor *tensor) {
  int64_t n = tensor_elements(tensor), columns = tensor->rank ? tensor->dims[tensor->rank - 1] : 1;
  strbuf_printf(out, "%s: %s", name, dtype_names[tensor->dtype]);
  print_dims(out, tensor->dims, tensor->rank);
  if (tensor->dtype == DTYPE_F32) print_range(out, tensor);
  strbuf_add_char(out, '\n');
  if (!n) return;
  int64_t rows = n / columns;
  for (int64_t row = 0; row < rows && row < MOST_ROWS; row++) print_row(out, tensor, row, columns);
  if (rows > MOST_ROWS) strbuf_printf(out, "  ... %lld rows more\n", (long long)(rows - MOST_ROWS));
}

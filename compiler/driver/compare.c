#include "driver/compare.h"

#include <math.h>
#include <string.h>

#include "driver/outputs.h"
#include "weights/safetensors.h"

Tolerance tolerance_of(const Options *options) {
  return (Tolerance){option_number(options, OPTION_ATOL, 1e-5), option_number(options, OPTION_RTOL, 1e-5)};
}

static double element(const Tensor *tensor, int64_t i) {
  if (tensor->dtype == DTYPE_F32) return (double)((const float *)tensor->data)[i];
  return tensor->dtype == DTYPE_I32 ? ((const int32_t *)tensor->data)[i] : ((const uint8_t *)tensor->data)[i];
}

static bool elements_agree(double got, double wanted, Tolerance tolerance) {
  if (got == wanted || (isnan(got) && isnan(wanted))) return true;
  return isfinite(wanted) && fabs(got - wanted) <= tolerance.absolute + tolerance.relative * fabs(wanted);
}

bool tensors_agree(const Tensor *got, const Tensor *wanted, Tolerance tolerance, Difference *difference) {
  *difference = (Difference){0};
  difference->shape = got->dtype != wanted->dtype || got->rank != wanted->rank ||
                      memcmp(got->dims, wanted->dims, got->rank * sizeof *got->dims) != 0;
  if (difference->shape) return false;
  if (got->dtype != DTYPE_F32) tolerance = (Tolerance){0, 0};
  int64_t n = tensor_elements(got);
  for (int64_t i = 0; i < n; i++) {
    double a = element(got, i), b = element(wanted, i);
    if (isfinite(a) && isfinite(b)) difference->worst = fmax(difference->worst, fabs(a - b));
    if (elements_agree(a, b, tolerance)) continue;
    if (!difference->count++) difference->first = i;
  }
  return difference->count == 0;
}

static void print_type(StrBuf *out, const Tensor *tensor) {
  strbuf_add(out, dtype_names[tensor->dtype]);
  print_dims(out, tensor->dims, tensor->rank);
}

void difference_print(StrBuf *out, const Difference *difference, const Tensor *got, const Tensor *wanted) {
  if (difference->shape) {
    print_type(out, got);
    strbuf_add(out, ", expected ");
    print_type(out, wanted);
    return;
  }
  strbuf_printf(out, "%lld of %lld elements differ, first at ", (long long)difference->count,
                (long long)tensor_elements(got));
  tensor_print_place(out, got, difference->first);
  strbuf_add(out, ": ");
  tensor_print_element(out, got, difference->first);
  strbuf_add(out, ", expected ");
  tensor_print_element(out, wanted, difference->first);
  strbuf_printf(out, "; the largest difference is %.3g", difference->worst);
}

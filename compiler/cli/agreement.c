/* Compares tensors; see agreement.h. Nothing is refused: tensors of different types or shapes differ. */
#include "cli/agreement.h"

#include <math.h>
#include <string.h>

#include "cli/outputs.h"

/* Of the largest expected value, and of each. What f32 loses in a deep model is a few 1e-6 of its largest values. */
static const double USUAL = 1e-5;

// ---- comparing ----

/* Every element fits a double exactly, so the comparison itself never rounds. */
static double element(const Tensor *tensor, int64_t i) {
  if (tensor->dtype == DTYPE_F32) return (double)((const float *)tensor->data)[i];
  return tensor->dtype == DTYPE_I32 ? ((const int32_t *)tensor->data)[i] : ((const uint8_t *)tensor->data)[i];
}

static double largest_of(const Tensor *tensor) {
  double largest = 0;
  const int64_t n = tensor_elements(tensor);
  for (int64_t i = 0; i < n; i++)
    if (isfinite(element(tensor, i))) largest = fmax(largest, fabs(element(tensor, i)));
  return largest;
}

/* An output of values below 1 is given the room of one whose largest is 1: the numbers that it was computed from are
 * not known, and may have been larger. */
static Tolerance tolerance_of(const Options *options, const Tensor *wanted, double largest) {
  if (wanted->dtype != DTYPE_F32) return (Tolerance){0, 0};
  return (Tolerance){option_number(options, OPTION_ATOL, USUAL * fmax(1, largest)),
                     option_number(options, OPTION_RTOL, USUAL)};
}

/* As numpy.allclose defines it; the expected value is what the tolerance is relative to. */
static bool elements_agree(double got, double wanted, Tolerance tolerance) {
  if (got == wanted || (isnan(got) && isnan(wanted))) return true;
  return isfinite(wanted) && fabs(got - wanted) <= tolerance.absolute + tolerance.relative * fabs(wanted);
}

static void note_difference(Difference *d, double got, double wanted) {
  const bool are_finite = isfinite(got) && isfinite(wanted);
  d->needed = are_finite ? fmax(d->needed, fabs(got - wanted) - d->allowed.relative * fabs(wanted)) : (double)INFINITY;
}

bool tensors_agree(const Options *options, const Tensor *got, const Tensor *wanted, Difference *difference) {
  Difference d = {0};
  d.shape = got->dtype != wanted->dtype || got->rank != wanted->rank ||
            memcmp(got->dims, wanted->dims, got->rank * sizeof *got->dims) != 0;
  if (!d.shape) {
    d.largest = largest_of(wanted);
    d.allowed = tolerance_of(options, wanted, d.largest);
  }
  const int64_t n = d.shape ? 0 : tensor_elements(got);
  for (int64_t i = 0; i < n; i++) {
    double a = element(got, i), b = element(wanted, i);
    if (isfinite(a) && isfinite(b)) d.worst = fmax(d.worst, fabs(a - b));
    if (elements_agree(a, b, d.allowed)) continue;
    note_difference(&d, a, b);
    if (!d.count++) d.first = i;
  }
  *difference = d;
  return !d.shape && !d.count;
}

double tensors_distance(const Tensor *got, const Tensor *wanted) {
  double apart = 0, size = 0;
  const int64_t n = tensor_elements(got);
  for (int64_t i = 0; i < n; i++) {
    const double a = element(got, i), b = element(wanted, i);
    const bool are_equal = a == b || (isnan(a) && isnan(b));
    if (!are_equal) apart += (a - b) * (a - b);
    if (isfinite(b)) size += b * b;
  }
  return apart == 0 ? 0 : sqrt(apart / size);
}

/* Of two rows of zeros 1. A row that is not finite is like its equal alone. */
static double row_cosine(const Tensor *got, const Tensor *wanted, int64_t begin, int64_t n, double *largest) {
  double product = 0, a_size = 0, b_size = 0;
  bool are_equal = true, are_finite = true;
  for (int64_t i = begin; i < begin + n; i++) {
    const double a = element(got, i), b = element(wanted, i);
    if (a != b && !(isnan(a) && isnan(b))) {
      are_equal = false;
      *largest = fmax(*largest, isfinite(a - b) ? fabs(a - b) : (double)INFINITY);
    }
    are_finite = are_finite && isfinite(a) && isfinite(b);
    product += a * b;
    a_size += a * a;
    b_size += b * b;
  }
  if (are_equal) return 1;
  return are_finite && a_size > 0 && b_size > 0 ? product / sqrt(a_size) / sqrt(b_size) : 0;
}

Likeness tensors_likeness(const Tensor *got, const Tensor *wanted) {
  Likeness likeness = {.least = 1, .distance = tensors_distance(got, wanted)};
  const int64_t n = tensor_elements(got), columns = got->rank ? got->dims[got->rank - 1] : 1;
  const int64_t row = columns > 1 ? columns : n;
  for (int64_t begin = 0; begin < n; begin += row) {
    const double cosine = row_cosine(got, wanted, begin, row, &likeness.largest);
    likeness.cosine += cosine;
    likeness.least = fmin(likeness.least, cosine);
  }
  likeness.cosine = n ? likeness.cosine / (double)(n / row) : 1;
  return likeness;
}

bool difference_is_unseen(const Options *options, const Difference *difference) {
  static const double PART = 0.01;
  return !difference->shape && !option_given(options, OPTION_ATOL) && difference->allowed.absolute > 0 &&
         difference->worst > PART * difference->largest;
}

/* Half the distance of neighbours, relative to the value: of 11 significant bits, and of 8. Other types are exact. */
static double rounding_of(FileDType type) { return type == FILE_F16 ? 0x1p-11 : type == FILE_BF16 ? 0x1p-8 : 0; }

bool rounding_explains(const Difference *difference, FileDType type, const Tensor *got, const Tensor *wanted) {
  static const double SUBNORMAL = 0x1p-25; /* half the distance of the smallest numbers of F16 */
  if (difference->shape || rounding_of(type) == 0) return false;
  Tolerance wider = difference->allowed;
  wider.absolute += SUBNORMAL;
  wider.relative += rounding_of(type);
  const int64_t n = tensor_elements(got);
  for (int64_t i = 0; i < n; i++)
    if (!elements_agree(element(got, i), element(wanted, i), wider)) return false;
  return true;
}

// ---- words ----

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

/* Two digits, rounded up. No tolerance is a cure for an output that is plainly another. */
static void print_cure(StrBuf *out, const Difference *difference) {
  static const double MOST_PART = 0.01, ROUNDED_DOWN = 1.05; /* at most by this factor: 1.05 becomes 1.0 */
  if (difference->needed <= MOST_PART * fmax(1, difference->largest))
    strbuf_printf(out, "; --atol=%.2g would accept this output", difference->needed * ROUNDED_DOWN);
}

bool tolerance_print(StrBuf *out, const Options *options, const Difference *difference, const Tensor *wanted) {
  if (difference->shape || wanted->dtype != DTYPE_F32) return false;
  const bool is_usual = !option_given(options, OPTION_ATOL), is_large = difference->largest > 1;
  strbuf_printf(out, "allowed: %.3g (--atol)", difference->allowed.absolute);
  if (is_usual && is_large)
    strbuf_printf(out, ", %.3g of the largest expected value of this output, %.6g,", USUAL, difference->largest);
  strbuf_printf(out, " and %.3g of each expected value (--rtol)", difference->allowed.relative);
  print_cure(out, difference);
  return true;
}

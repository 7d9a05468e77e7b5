/* In: nests and shapes. Out: estimates as polynomials. See cost.h.
 *
 * Where the numbers come from: they are round figures for one core of the machine that docs/performance.md describes
 * (AVX-512, a shared Xeon). They were chosen from its rates of arithmetic and reading, not fitted to single steps; the
 * tables there say what steps really take. */
#include "plan/cost.h"

#include "base/checked_size.h"

// ---- arithmetic on estimates ----

/* Returns a * b, or a number large enough to stand for it. INT64_MAX / 64 leaves room for the factors below, so that
 * no caller needs to check again. */
static int64_t roughly(int64_t a, int64_t b) {
  const int64_t most = INT64_MAX / 64;
  int64_t product;
  return checked_mul(a, b, &product) && product < most ? product : most;
}

/* Bytes moved and operations done per element. An operand with a stride along the columns is read or written for every
 * element; any other was loaded once for the row and costs nothing here. */
static int64_t units_per_element(const Nest *nest) {
  int64_t units = (int64_t)expr_count(nest->expr);
  for (uint32_t i = 0; i < nest->n_operands; i++)
    if (!size_equals(nest->operands[i].strides[nest->rank - 1], 0)) units += dtype_bytes[nest->operands[i].dtype];
  return units;
}

// ---- row kernels ----

/* Row kernels wait for memory, which is taken to give one core 8 bytes a nanosecond. An operation on a number is
 * charged like a byte: long expressions then cost more than copies, which is all that the choice of threads needs. */
enum { ROW_UNITS_PER_NS = 8 };

tfm_size cost_rows(Planner *p, const Nest *nest) {
  const Size *elements = math_product(&p->math, nest->rank, nest->dims);
  return plan_scaled(p, elements, units_per_element(nest), ROW_UNITS_PER_NS);
}

// ---- products ----

/* In hundredths of a nanosecond, so that all are whole numbers:
 * - a multiplication and an addition at 100 operations a nanosecond: the FMA rate of AVX-512 at 3 GHz (two units) is
 *   about twice that, and tiles of few rows do not reach it;
 * - a weight, 4 bytes, at 10 bytes a nanosecond: what one of two threads reads from memory (bench/notes.md: a
 *   plain loop of both reads 23 to 25 GB/s);
 * - a byte or operation of the epilogue at 8 a nanosecond, the rate of row kernels (12.5 hundredths, rounded down
 * because
 *   c is in L1 then). */
enum { HUNDREDTHS = 100, PER_FMA = 2, PER_WEIGHT = 40, PER_EPILOGUE_UNIT = 12 };

tfm_size cost_gemm(Planner *p, const Nest *nest, const Size *rows, int64_t n, int64_t k) {
  int64_t weights = roughly(n, k);
  int64_t per_row = PER_FMA * weights + PER_EPILOGUE_UNIT * roughly(n, units_per_element(nest));
  const Size *work = math_mul(&p->math, rows, math_const(&p->math, per_row));
  return plan_scaled(p, math_add(&p->math, work, math_const(&p->math, PER_WEIGHT * weights)), 1, HUNDREDTHS);
}

/* Four additions of the rotation and a multiplication for each number, which is read, written and read again in the
 * nearest cache: about 4 numbers a nanosecond. */
enum { WHOLE_NUMBERS_PER_NS = 4 };

tfm_size cost_quantize(Planner *p, const Size *rows, int64_t k) {
  return plan_scaled(p, math_mul(&p->math, rows, math_const(&p->math, k)), 1, WHOLE_NUMBERS_PER_NS);
}

/* Both factors are activations, one of which is packed before it is used. To pay for that, the rate is taken to be 80
 * operations a nanosecond and not 100. */
enum { MATMUL_FMAS_PER_NS = 40 };

tfm_size cost_matmul(Planner *p, const Nest *nest, const Size *k) {
  const Size *elements = math_product(&p->math, nest->rank, nest->dims);
  return plan_scaled(p, math_mul(&p->math, elements, k), 1, MATMUL_FMAS_PER_NS);
}

// ---- attention ----

/* Per score, in thousandths of a nanosecond:
 * - two products at 100 operations a nanosecond, as for gemms: 0.02 ns for each of the h + e columns;
 * - 0.3 ns for the softmax: an exponential is about 15 vector operations for 16 numbers, plus the passes over the
 * strip;
 * - 0.012 ns for a byte or operation of the score expression: a tenth of what a gemm charges for its epilogue
 * (0.12) and
 *   of what a row kernel charges (0.125).
 *
 * The last number has stood here since the first version of the planner, which gave no reason for it, and no
 * measurement of it is recorded: it is a guess. That scores lie in L1 would justify a lower rate, but the epilogue of
 * a gemm also runs in L1. For a head of 64 the products take 2.6 ns and a masked score about 0.1 ns; at the rate of a
 * gemm the mask would take 1 ns and the estimate would grow by a third, which is within the factor of two that it may
 * be off. */
enum { THOUSANDTHS = 1000, PER_HEAD_COLUMN = 20, PER_SCORE_UNIT = 12, PER_SOFTMAX = 300 };

tfm_size cost_attention(Planner *p, const Nest *nest, int64_t h, int64_t e) {
  const Size *scores = math_product(&p->math, nest->rank, nest->dims);
  int64_t per_score = PER_HEAD_COLUMN * (h + e) + PER_SCORE_UNIT * units_per_element(nest) + PER_SOFTMAX;
  return plan_scaled(p, scores, per_score, THOUSANDTHS);
}

// ---- small steps ----

/* A sine or cosine in double, by the C library. A table whose positions depend on sizes alone is computed once per
 * size, not once per run. */
enum { NS_PER_TABLE_ELEMENT = 20 };

tfm_size cost_table(Planner *p, const Size *elements) { return plan_scaled(p, elements, NS_PER_TABLE_ELEMENT, 1); }

/* Guesses, of plain loops of the runtime: an addition that waits for the one before it, or a copy, takes about a
 * nanosecond; pow of the C library twenty; an element that is compared with the greatest so far, and sometimes put
 * among them, four. */
tfm_size cost_along(Planner *p, tfm_along what, const Size *elements) {
  return plan_scaled(p, elements, what == TFM_ALONG_POWER ? NS_PER_TABLE_ELEMENT : what == TFM_ALONG_TOPK ? 4 : 1, 1);
}

/* Four operations for each element of the state and step, at eight elements in a third of a nanosecond. */
tfm_size cost_state(Planner *p, const Size *elements, int64_t n) { return plan_scaled(p, elements, n, 6); }

/* A comparison of an id, and a copy of a number into a page, are charged a nanosecond each: they are plain loops of
 * the runtime, and short beside the steps around them. */
tfm_size cost_ids(Planner *p, const Size *elements) { return plan_size(p, elements); }
tfm_size cost_append(Planner *p, const Size *elements) { return plan_size(p, elements); }

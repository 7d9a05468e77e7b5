/* Pairs: a number as the exact sum of two doubles, |low| at most half an ulp of high, so about 106 bits. Operations
 * lose at most some 2^-103 of their operands. Only +, -, *, / in round to nearest, each rounded alone: the same bits on
 * every machine. (T. J. Dekker, A floating-point technique for extending the available precision, 1971.) */
#ifndef TFM_RUNTIME_PAIR_H
#define TFM_RUNTIME_PAIR_H

typedef struct Pair {
  double high, low;
} Pair;

/* For |a| >= |b|, or a = 0. */
static inline Pair pair_of_ordered(double a, double b) {
  const double sum = a + b;
  return (Pair){sum, b - (sum - a)};
}

static inline Pair pair_of_sum(double a, double b) {
  const double sum = a + b, part = sum - a;
  return (Pair){sum, (a - (sum - part)) + (b - part)};
}

/* Both below 2^996 in size. */
static inline Pair pair_of_product(double a, double b) {
  const double splitter = 134217729; /* 2^27 + 1: halves of 26 bits, whose products are exact */
  const double a_part = a * splitter, b_part = b * splitter;
  const double a_high = a_part - (a_part - a), b_high = b_part - (b_part - b);
  const double a_low = a - a_high, b_low = b - b_high, product = a * b;
  return (Pair){product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

static inline Pair pair_add(Pair a, Pair b) {
  const Pair sum = pair_of_sum(a.high, b.high);
  return pair_of_ordered(sum.high, sum.low + (a.low + b.low));
}

static inline Pair pair_multiply(Pair a, Pair b) {
  const Pair product = pair_of_product(a.high, b.high);
  return pair_of_ordered(product.high, product.low + (a.high * b.low + a.low * b.high));
}

static inline Pair pair_divide(Pair a, Pair b) {
  const double quotient = a.high / b.high;
  const Pair product = pair_multiply((Pair){quotient, 0}, b);
  const double rest = (a.high - product.high) - product.low + a.low;
  return pair_of_ordered(quotient, rest / b.high);
}

static inline Pair pair_negated(Pair a) { return (Pair){-a.high, -a.low}; }

#endif

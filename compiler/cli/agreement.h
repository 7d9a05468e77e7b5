/* Agreement: whether what was computed is what was expected, and in which words.
 *
 * In: two tensors and the options --atol and --rtol. Out: whether they agree; if not, how many elements differ, where
 * the first one is, what was allowed and how to allow more.
 *
 * Two numbers are equal if |got - wanted| <= atol + rtol |wanted|; NaN equals NaN, an infinity only itself, and i32 and
 * bool are compared exactly. Without --atol it is relative to the size of the output: an element near zero is a sum
 * whose terms are as large as those of its neighbours, and so is its rounding. */
#ifndef TFM_CLI_AGREEMENT_H
#define TFM_CLI_AGREEMENT_H

#include "cli/cli_options.h"
#include "graph/eval.h"
#include "weights/convert.h"

typedef struct Tolerance {
  double absolute, relative;
} Tolerance;

typedef struct Difference {
  bool shape;           /* type or shape differ; nothing else is set */
  int64_t count, first; /* elements that differ */
  double worst;         /* the largest |got - wanted| among all elements that are finite in both */
  double largest;       /* the largest finite |wanted| */
  double needed;        /* --atol with which all agree; infinite: there is none */
  Tolerance allowed;
} Difference;

/* Returns whether they agree and sets `difference` in both cases. Integers and booleans are compared exactly, whatever
 * the tolerance. */
bool tensors_agree(const Options *options, const Tensor *got, const Tensor *wanted, Difference *difference);
/* How far apart two tensors of one shape are: the root of the sum of squares of got - wanted, relative to that of
 * wanted; NaN if one is not finite where the other is. */
double tensors_distance(const Tensor *got, const Tensor *wanted);
/* How much two tensors of one shape have the same direction, by rows: the last axis, or all of a tensor whose last axis
 * is 1. */
typedef struct Likeness {
  double cosine, least; /* mean of all rows, and of the row that is least alike; 1 without rows */
  double largest;       /* the largest |got - wanted|; infinite if one is not finite where the other is */
  double distance;      /* of tensors_distance */
} Likeness;

Likeness tensors_likeness(const Tensor *got, const Tensor *wanted);
/* Whether numbers that agree are so small that the tolerance, which nobody set, accepts others as well. */
bool difference_is_unseen(const Options *options, const Difference *difference);
/* Whether they would agree but for the rounding to the type that a file holds. */
bool rounding_explains(const Difference *difference, FileDType type, const Tensor *got, const Tensor *wanted);

/* "12 of 40 elements differ, first at [0, 3]: 1.5, expected 1.25; the largest difference is 0.25" */
void difference_print(StrBuf *out, const Difference *difference, const Tensor *got, const Tensor *wanted);
/* What was allowed, and how to allow more. False: nothing is, because no tolerance concerns this difference. */
bool tolerance_print(StrBuf *out, const Options *options, const Difference *difference, const Tensor *wanted);

#endif

/* Compare: whether two tensors agree within a tolerance.
 *
 * Equal: |got - wanted| <= atol + rtol |wanted|; NaN equals NaN, an infinity only itself; i32 and bool exactly. */
#ifndef TFM_DRIVER_COMPARE_H
#define TFM_DRIVER_COMPARE_H

#include "driver/session.h"
#include "graph/eval.h"

typedef struct Tolerance {
  double absolute, relative;
} Tolerance;

typedef struct Difference {
  bool shape;        /* type or shape differ; nothing else is set */
  int64_t count, first; /* elements that differ */
  double worst;      /* the largest |got - wanted| among all elements that are finite in both */
} Difference;

Tolerance tolerance_of(const Options *options);
/* True if they agree; `difference` is set in both cases. */
bool tensors_agree(const Tensor *got, const Tensor *wanted, Tolerance tolerance, Difference *difference);
/* "12 of 40 elements differ, first at [0, 3]: 1.5, expected 1.25" */
void difference_print(StrBuf *out, const Difference *difference, const Tensor *got, const Tensor *wanted);

#endif

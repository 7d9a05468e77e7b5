/* Direct products: small and narrow ones, whose kernel reads both factors where they lie. */
#ifndef TFM_RUNTIME_STEP_DIRECT_H
#define TFM_RUNTIME_STEP_DIRECT_H

#include "steps/matmul_cut.h"

typedef struct DirectWork { /* `items` products; of the first, the rows of x, the columns of y, the results */
  const char *x, *y;
  char *c;
  int64_t c_row;            /* bytes from row to row of the results */
  int64_t items, rows, columns;
  int64_t first_k, end_k;   /* steps of k */
} DirectWork;

void direct_run(const Walker *walker, const Matmul *m, const DirectWork *work);
/* Items [first, end), all of each, with their epilogue. */
void direct_run_items(const Walker *walker, const Matmul *m, int64_t first, int64_t end);

#endif

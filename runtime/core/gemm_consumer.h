/* A consumer takes the results of a gemm step unit by unit, while they are still in the cache, so that the matrix of
 * all results is never written. */
#ifndef TFM_RUNTIME_GEMM_CONSUMER_H
#define TFM_RUNTIME_GEMM_CONSUMER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct GemmUnit { /* of the results */
  int64_t first_row, rows, first_column, columns;
} GemmUnit;

typedef struct GemmConsumer GemmConsumer;
struct GemmConsumer {
  uint32_t step;
  bool wanted;    /* in this run */
  int64_t panels; /* of a unit; the last one may have fewer. So the columns of units are the same in all runs */
  /* Called once for each unit, by several threads at a time. `c`: its rows, `stride` elements apart; they may be
   * overwritten. */
  void (*take)(const GemmConsumer *consumer, int32_t thread, float *c, int64_t stride, const GemmUnit *unit);
};

#endif

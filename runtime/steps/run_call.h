/* What a run is besides a bound context: arguments of walk_run, which threads and drivers see as Walker.call. Most runs
 * are of one context and have nothing else. */
#ifndef TFM_RUNTIME_RUN_CALL_H
#define TFM_RUNTIME_RUN_CALL_H

#include "context/context.h"

/* A part of the results of a product: rows [row, row + rows) of all axes but the last taken as one, columns
 * [column, column + columns). */
typedef struct Region {
  int64_t row, rows, column, columns;
} Region;

typedef struct RunPart { /* a context that takes part in a run: several are lockstep runs (decode/lockstep.h) */
  tfm_context *context;
  float *const *const *own, *const *const *source; /* with caches: the pages of each row, and of its source */
  int64_t rows_before; /* that the consumer gets of the parts before it */
} RunPart;

/* A consumer takes the results of a gemm step unit by unit, while they are still in the cache, so that the matrix of
 * all results is never written. Which step that is the contexts know (Memory.consumed). */
typedef struct GemmUnit { /* of the results */
  int64_t first_row, rows, first_column, columns;
} GemmUnit;

typedef struct GemmConsumer GemmConsumer;
struct GemmConsumer {
  /* Called once for each unit, by several threads at a time. `c`: its rows, `stride` elements apart; they may be
   * overwritten. The columns of units are the same in all runs. */
  void (*take)(const GemmConsumer *consumer, int32_t thread, float *c, int64_t stride, const GemmUnit *unit);
};

typedef struct RunCall RunCall;
typedef struct Walker Walker;

/* What runs of several contexts need: nothing but a call that has several refers to it, so that the linker leaves it
 * out of libraries of models that do not generate. */
typedef struct LockstepFunctions {
  int32_t (*share_steps)(const RunCall *call);
  bool (*is_one_product)(const RunCall *call, const tfm_step *step);
  void (*finish_tile)(const Walker *walker, const tfm_gemm_step *step, char *tile, int64_t tile_stride,
                      const Region *at);
} LockstepFunctions;

struct RunCall {
  const RunPart *parts; /* [n], each with its own sizes, of one program */
  int32_t n;
  const LockstepFunctions *lockstep; /* n 1: not read */
  const GemmConsumer *consumer;      /* NULL: all results are written */
};

#endif

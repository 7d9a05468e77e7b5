/* What programs that measure share: from a file of this repository to a compiled model. */
#ifndef TFM_BENCH_COMPILING_H
#define TFM_BENCH_COMPILING_H

#include "compile/compile_model.h"
#include "elaborate/elaborate.h"
#include "weights/weight_set.h"

typedef struct BenchModel { /* what to compile */
  const char *file; /* from the root of the sources */
  ElaborateOptions options;
  const TargetInfo *target;
  const WeightSet *weights; /* NULL: zeros, to be filled in, or random numbers */
  bool is_random;           /* as of --random-weights */
  const char *const *rules; /* of --quantize */
  uint32_t n_rules;
} BenchModel;

/* The whole forward of a model, or the incremental form of a generative model. Messages are printed on stderr. False
 * after an error; else compiled_free when done. */
bool compile_file(Arena *arena, const BenchModel *model, bool decoder, Compiled *compiled);
void print_messages(const Diag *diag); /* on stderr */

double seconds_now(void);

#endif

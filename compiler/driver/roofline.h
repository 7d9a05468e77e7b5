/* Roofline: how fast a compiled program could be at best, by what its steps compute and read.
 *
 * In: a program, the dims of its inputs or its run-time sizes, what the machine can do. Out: arithmetic of the matrix
 * products and attention as they are executed, the packed weights and the caches they read, and the sum over the steps of
 * whichever takes longer, computing or reading. Activations count as free, and so does everything else. */
#ifndef TFM_DRIVER_ROOFLINE_H
#define TFM_DRIVER_ROOFLINE_H

#include "driver/probe.h"
#include "tfm/program.h"

typedef struct Work {
  double flops, weight_bytes, cache_bytes; /* of one run; every row reads caches of its own */
} Work;

/* `dims`: one per input of the program, in its order; NULL for one that was left out. */
Work roofline_work(const tfm_program *program, const int64_t *const *dims);
double roofline_seconds(const tfm_program *program, const int64_t *const *dims, const Probe *most);

/* For sizes that no input tells: earlier positions. `symbols`: the values of the program's sizes, in its order. */
Work roofline_work_at(const tfm_program *program, const int64_t *symbols);
double roofline_seconds_at(const tfm_program *program, const int64_t *symbols, const Probe *most);

#endif

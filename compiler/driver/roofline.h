/* Roofline: how fast a compiled program could be at best, by what its steps compute and read.
 *
 * In: a program, the dims of its inputs, what the machine can do. Out: arithmetic of the matrix products and attention as
 * they are executed, the packed weights they read, and the sum over the steps of whichever takes longer. Activations
 * count as free, and so does everything else. */
#ifndef TFM_DRIVER_ROOFLINE_H
#define TFM_DRIVER_ROOFLINE_H

#include "driver/probe.h"
#include "tfm/program.h"

typedef struct Work {
  double flops, weight_bytes; /* of one run */
} Work;

/* `dims`: one per input of the program, in its order; NULL for one that was left out. */
Work roofline_work(const tfm_program *program, const int64_t *const *dims);
double roofline_seconds(const tfm_program *program, const int64_t *const *dims, const Probe *most);

#endif

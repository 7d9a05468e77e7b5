/* Probe: what this machine can do at most, measured: arithmetic and reading of memory, by n threads at once.
 *
 * `tfmc bench` compares with it. The arithmetic is that of an instruction set, independent chains in registers; the
 * memory is read in order, from a block as large as what the model reads. */
#ifndef TFM_DRIVER_PROBE_H
#define TFM_DRIVER_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "target/target.h"

typedef struct Probe {
  double flops; /* per second: f32 multiplications and additions of all threads */
  double bytes; /* per second */
} Probe;

/* Takes about a tenth of a second. `bytes`: how much memory is read in one pass, brought into [64 MiB, 512 MiB]. The CPU
 * must be able to run `target`. False if there is no memory or no thread. */
bool probe_measure(const TargetInfo *target, int32_t threads, size_t bytes, Probe *probe);

#endif

/* Probe: what this machine can do at most, measured: arithmetic in f32 and of bytes, and reading from memory, by n
 * threads at once.
 *
 * In: an instruction set, a number of threads, an amount of memory. Out: operations and bytes per second. A measurement
 * is only compared with a probe of the same minute.
 *
 * The arithmetic is independent chains of multiply-adds in vector registers. Memory is read by vectors, in order and
 * in several places by turns, of which the faster counts; each thread reads its share of `bytes` over and over, so what
 * fits into a cache is read from there. Both are timed in pieces of well under a millisecond. The figure of a round is
 * the median of a thread's pieces, added up over the threads, so pieces during which something else had the CPU do not
 * count. */
#ifndef TFM_MEASURE_PROBE_H
#define TFM_MEASURE_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "target/target.h"

typedef struct Probe {
  double flops; /* per second: f32 multiplications and additions of all threads */
  double whole; /* the same of bytes, by the instructions that int8 takes on this instruction set */
  double bytes; /* per second */
} Probe;

typedef struct ProbeSet ProbeSet;

/* `bytes` is the memory of all threads together, at most 512 MiB. The CPU must be able to run `target`. NULL if there
 * is no memory; else probe_close when done. */
ProbeSet *probe_open(const TargetInfo *target, int32_t threads, size_t bytes);
/* One round, of some milliseconds. False if a thread could not be started. */
bool probe_round(ProbeSet *set, Probe *probe);
void probe_close(ProbeSet *set); /* NULL is ignored */

/* The best of several rounds: a neighbour on the machine can only slow them down. False if there is no memory or no
 * thread. */
bool probe_measure(const TargetInfo *target, int32_t threads, size_t bytes, Probe *probe);

#endif

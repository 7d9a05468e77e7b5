/* A machine of which nothing is known: the floating-point mode stays as it is, threads wait without a hint. See
 * machine.h for who includes this. */
#ifndef TFM_RUNTIME_PORTABLE_H
#define TFM_RUNTIME_PORTABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "machine/plain_floats.h"
#include "tfm/abi/cpu.h"

#ifndef MACHINE_FAMILY
#define MACHINE_FAMILY ANY
#endif
#define MACHINE_TUNING "tfm/abi/tuning_x86.def" /* nothing was measured there */

static inline uint64_t fp_mode_enter(void) { return 0; }

static inline void fp_mode_leave(uint64_t before) { (void)before; }

static inline void cpu_relax(void) {}

static inline void fetch_for_writing(const float *address) { __builtin_prefetch(address, 1, 3); }

static inline bool machine_reads_ahead(void) { return false; } /* not measured */

static inline int32_t machine_vector_bytes(uint32_t features) { return (void)features, 16; }

#endif

/* AArch64. See machine.h for who includes this, and what for. */
#ifndef TFM_RUNTIME_AARCH64_H
#define TFM_RUNTIME_AARCH64_H

#include <stdbool.h>
#include <stdint.h>

#include "machine/plain_floats.h"
#include "tfm/abi/cpu.h"

#define MACHINE_FAMILY AARCH64
#define MACHINE_FEATURES "tfm/abi/features_aarch64.def"
#define MACHINE_TUNING "tfm/abi/tuning_x86.def" /* nothing was measured there */

/* FPCR: round to nearest, no traps. Returns what it was. */
static inline uint64_t fp_mode_enter(void) {
  uint64_t before;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  __asm__ volatile("msr fpcr, %0" : : "r"(UINT64_C(0)));
  return before;
}

static inline void fp_mode_leave(uint64_t before) { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }

/* `yield` takes no time on most of these CPUs; a barrier for instructions takes some tens of cycles. */
static inline void cpu_relax(void) { __asm__ volatile("isb"); }

static inline void fetch_for_writing(const float *address) { __builtin_prefetch(address, 1, 3); }

static inline bool machine_reads_ahead(void) { return false; } /* not measured */

static inline int32_t machine_vector_bytes(uint32_t features) { return (void)features, 16; }

#endif

/* AArch64. See machine.h for who includes this, and what for. The compiler has no rows for this family. */
#ifndef TFM_RUNTIME_AARCH64_H
#define TFM_RUNTIME_AARCH64_H

#include <stdbool.h>
#include <stdint.h>

#include "machine/plain_floats.h"
#include "tfm/abi/cpu.h"

#define MACHINE_FAMILY ANY
#define MACHINE_TUNING "tfm/abi/tuning_x86.def" /* nothing was measured there */

/* FPCR: round to nearest, no traps; with `flushes`, subnormal operands and results are 0. Returns what it was. */
static inline uint64_t fp_mode_enter_as(bool flushes) {
  uint64_t before;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)flushes << 24));
  return before;
}

static inline void fp_mode_leave(uint64_t before) { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }

static inline void cpu_relax(void) { __asm__ volatile("yield"); }

static inline void fetch_for_writing(const float *address) { __builtin_prefetch(address, 1, 3); }

static inline int32_t machine_vector_bytes(uint32_t features) { return (void)features, 16; }

#endif

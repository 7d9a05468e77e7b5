/* RISC-V 64. See machine.h for who includes this, and what for. */
#ifndef TFM_RUNTIME_RISCV64_H
#define TFM_RUNTIME_RISCV64_H

#include <stdbool.h>
#include <stdint.h>

#include "machine/plain_floats.h"
#include "tfm/abi/cpu.h"

#define MACHINE_FAMILY RISCV64
#define MACHINE_FEATURES "tfm/abi/features_riscv64.def"
#define MACHINE_TUNING "tfm/abi/tuning_x86.def" /* nothing was measured there */

/* frm: round to nearest. There are no traps. Returns what it was. */
static inline uint64_t fp_mode_enter(void) {
  uint64_t before;
  __asm__ volatile("fsrmi %0, 0" : "=r"(before));
  return before;
}

static inline void fp_mode_leave(uint64_t before) { __asm__ volatile("fsrm %0" : : "r"(before)); }

/* pause, a hint that is legal everywhere; assemblers may not know its name. */
static inline void cpu_relax(void) { __asm__ volatile(".4byte 0x0100000f"); }

static inline void fetch_for_writing(const float *address) { __builtin_prefetch(address, 1, 3); }

static inline bool machine_reads_ahead(void) { return false; } /* not measured */

static inline int32_t machine_vector_bytes(uint32_t features) { return (void)features, 16; }

#endif

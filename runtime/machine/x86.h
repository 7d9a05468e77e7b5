/* x86-64. See machine.h for who includes this, and what for. */
#ifndef TFM_RUNTIME_X86_H
#define TFM_RUNTIME_X86_H

#include <emmintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tfm/abi/cpu.h"

#define MACHINE_FAMILY X86_64
#define MACHINE_FEATURES "tfm/abi/features_x86.def"
#define MACHINE_TUNING "tfm/abi/tuning_x86.def"

/* MXCSR: round to nearest, no traps. Returns what it was. */
static inline uint64_t fp_mode_enter(void) {
  unsigned before = _mm_getcsr();
  _mm_setcsr(0x1f80);
  return before;
}

static inline void fp_mode_leave(uint64_t before) { _mm_setcsr((unsigned)before); }

static inline void cpu_relax(void) { __builtin_ia32_pause(); }

/* Asks for the line that holds `address`, to have it alone: a line that is written comes as slowly as one that is
 * read. The compiler's own form of prefetchw needs a newer CPU. */
static inline void fetch_for_writing(const float *address) { __asm__ volatile("prefetchw %0" : : "m"(*address)); }

/* Whether this CPU, alone, reads on in memory that it reads in one piece faster than programs fetch it. */
bool machine_reads_ahead(void);

/* Bytes of the vectors that code for these features works on. */
static inline int32_t machine_vector_bytes(uint32_t features) {
  const uint32_t wide = CPU_AVX512F | CPU_AVX512DQ | CPU_AVX512VL;
  return (features & wide) == wide ? 64 : features & CPU_AVX2 ? 32 : 16;
}

typedef float Floats4 __attribute__((vector_size(16)));

/* a > b ? a : b, which is one instruction that compilers do not always find. A NaN in `a` gives b. */
static inline Floats4 larger_floats(Floats4 a, Floats4 b) { return (Floats4)_mm_max_ps((__m128)a, (__m128)b); }

#endif

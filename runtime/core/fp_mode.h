/* The floating-point mode of the runtime: round to nearest, subnormal numbers kept, no traps. The caller's mode is put
 * back when the runtime returns. */
#ifndef TFM_RUNTIME_FP_MODE_H
#define TFM_RUNTIME_FP_MODE_H

#include <stdint.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static inline uint64_t fp_mode_enter(void) {
#if defined(__x86_64__)
  unsigned before = _mm_getcsr();
  _mm_setcsr(0x1f80);
  return before;
#elif defined(__aarch64__)
  uint64_t before;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  __asm__ volatile("msr fpcr, %0" : : "r"(UINT64_C(0)));
  return before;
#else
  return 0;
#endif
}

static inline void fp_mode_leave(uint64_t before) {
#if defined(__x86_64__)
  _mm_setcsr((unsigned)before);
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(before));
#else
  (void)before;
#endif
}

#endif

/* The floating-point mode of the runtime: round to nearest, subnormal numbers kept, no traps. The caller's mode is put
 * back when the runtime returns. In steps of training subnormal numbers are 0: what is left of a softmax that is sure
 * of itself makes many of them, each of which costs a processor a hundred operations. */
#ifndef TFM_RUNTIME_FP_MODE_H
#define TFM_RUNTIME_FP_MODE_H

#include <stdbool.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static inline uint64_t fp_mode_enter_as(bool flushes) {
#if defined(__x86_64__)
  unsigned before = _mm_getcsr();
  _mm_setcsr(flushes ? 0x9fc0 : 0x1f80);
  return before;
#elif defined(__aarch64__)
  uint64_t before;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)flushes << 24));
  return before;
#else
  (void)flushes;
  return 0;
#endif
}

static inline uint64_t fp_mode_enter(void) { return fp_mode_enter_as(false); }

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

/* In: cpuid and xgetbv. Out: which features may be used. An instruction set whose registers the system doesn't save
 * counts as missing. */
#include "cpu_features.h"

#include <stddef.h>
#include <string.h>

enum {
  LEVEL_3 = CPU_AVX | CPU_AVX2 | CPU_FMA | CPU_F16C | CPU_BMI1 | CPU_BMI2 | CPU_LZCNT | CPU_MOVBE | CPU_POPCNT,
  LEVEL_4 = LEVEL_3 | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512CD | CPU_AVX512DQ | CPU_AVX512VL
};

static const struct {
  const char *isa;
  uint32_t features;
} needs[] = {
#if defined(__x86_64__)
    {"x86-64", 0}, {"x86-64-v3", LEVEL_3}, {"x86-64-v4", LEVEL_4},
#endif
#if defined(__aarch64__)
    {"aarch64", 0},
#endif
    {"C", 0} /* kernels that a C compiler made */
};

static const char *const names[] = {"AVX",   "AVX2",   "FMA",     "F16C",     "BMI1",     "BMI2",     "LZCNT",
                                    "MOVBE", "POPCNT", "AVX512F", "AVX512BW", "AVX512CD", "AVX512DQ", "AVX512VL"};

const char *cpu_missing(const char *isa, uint32_t features, bool *known) {
  *known = false;
  for (size_t i = 0; i < sizeof needs / sizeof *needs && !*known; i++) {
    *known = strcmp(needs[i].isa, isa) == 0;
    for (size_t bit = 0; *known && bit < sizeof names / sizeof *names; bit++)
      if (needs[i].features & ~features & 1u << bit) return names[bit];
  }
  return NULL;
}

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t saved_registers(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static uint32_t when(bool present, uint32_t feature) { return present ? feature : 0; }

uint32_t cpu_features(void) {
  enum { SAVES = 1 << 27, AVX_STATE = 6, AVX512_STATE = 0xe6 };
  uint32_t a, b, c, d, features = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  uint64_t saved = c & SAVES ? saved_registers() : 0;
  bool avx = (saved & AVX_STATE) == AVX_STATE, avx512 = (saved & AVX512_STATE) == AVX512_STATE;
  features |= when(avx && c & 1u << 28, CPU_AVX) | when(avx && c & 1u << 12, CPU_FMA) |
              when(avx && c & 1u << 29, CPU_F16C) | when(c & 1u << 22, CPU_MOVBE) | when(c & 1u << 23, CPU_POPCNT);
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
    features |= when(avx && b & 1u << 5, CPU_AVX2) | when(b & 1u << 3, CPU_BMI1) | when(b & 1u << 8, CPU_BMI2) |
                when(avx512 && b & 1u << 16, CPU_AVX512F) | when(avx512 && b & 1u << 17, CPU_AVX512DQ) |
                when(avx512 && b & 1u << 28, CPU_AVX512CD) | when(avx512 && b & 1u << 30, CPU_AVX512BW) |
                when(avx512 && b & 1u << 31, CPU_AVX512VL);
  if (__get_cpuid(0x80000001, &a, &b, &c, &d)) features |= when(c & 1u << 5, CPU_LZCNT);
  return features;
}
#else
uint32_t cpu_features(void) { return 0; }
#endif

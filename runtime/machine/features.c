/* Features come from cpuid and xgetbv; an instruction set whose registers the system does not save counts as missing.
 * In: the name of an instruction set. Out: what this processor lacks for it. See features.h. */
#define _DEFAULT_SOURCE /* syscall */
#include "machine/features.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "tfm/abi/tiles.h"

// ---- instruction sets ----

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
    {"x86-64-v3-vnni", LEVEL_3 | CPU_AVX_VNNI}, {"x86-64-v4-vnni", LEVEL_4 | CPU_AVX512_VNNI},
    {"x86-64-v4-amx", LEVEL_4 | CPU_AVX512_VNNI | CPU_AMX},
#endif
#if defined(__aarch64__)
    {"aarch64", 0},
#endif
    {"C", 0} /* kernels that a C compiler made */
};

static const char *const names[] = {"AVX",      "AVX2",     "FMA",      "F16C",     "BMI1",     "BMI2",
                                    "LZCNT",    "MOVBE",    "POPCNT",   "AVX512F",  "AVX512BW", "AVX512CD",
                                    "AVX512DQ", "AVX512VL", "AVX-VNNI", "AVX512-VNNI", "AMX-INT8"};

/* Bits of CpuFeature are in the order of `names`. */
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

/* XCR0: the register sets that the system saves when it switches threads. */
static uint64_t saved_registers(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static uint32_t when(bool present, uint32_t feature) { return present ? feature : 0; }

/* Leaf 7: edx bits 24 (tiles) and 25 (of bytes); XCR0 bits 17 and 18. */
static bool has_tiles(uint64_t saved, uint32_t features) {
  const uint64_t state = UINT64_C(3) << 17;
  return (saved & state) == state && (features >> 24 & 3) == 3 && tfm_tiles_granted();
}

/* Bits of cpuid leaves 1, 7 (0 and 1) and 0x80000001 (Intel SDM volume 2, CPUID). AVX needs XCR0 bits 1 and 2, AVX-512
 * also 5 to 7. */
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
                when(avx512 && b & 1u << 31, CPU_AVX512VL) | when(avx512 && c & 1u << 11, CPU_AVX512_VNNI) |
                when(has_tiles(saved, d), CPU_AMX);
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) features |= when(avx && a & 1u << 4, CPU_AVX_VNNI);
  if (__get_cpuid(0x80000001, &a, &b, &c, &d)) features |= when(c & 1u << 5, CPU_LZCNT);
  return features;
}
#else
uint32_t cpu_features(void) { return 0; }
#endif

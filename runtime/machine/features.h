/* The features of this processor, and which of them instruction sets need. */
#ifndef TFM_RUNTIME_FEATURES_H
#define TFM_RUNTIME_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum CpuFeature {
  CPU_AVX = 1 << 0,
  CPU_AVX2 = 1 << 1,
  CPU_FMA = 1 << 2,
  CPU_F16C = 1 << 3,
  CPU_BMI1 = 1 << 4,
  CPU_BMI2 = 1 << 5,
  CPU_LZCNT = 1 << 6,
  CPU_MOVBE = 1 << 7,
  CPU_POPCNT = 1 << 8,
  CPU_AVX512F = 1 << 9,
  CPU_AVX512BW = 1 << 10,
  CPU_AVX512CD = 1 << 11,
  CPU_AVX512DQ = 1 << 12,
  CPU_AVX512VL = 1 << 13,
  CPU_AVX_VNNI = 1 << 14,
  CPU_AVX512_VNNI = 1 << 15,
  CPU_AMX = 1 << 16 /* tiles of bytes, which the system has granted to this process */
} CpuFeature;

/* Bits of CpuFeature that this CPU has and the system lets programs use. */
uint32_t cpu_features(void);
/* The name of the first feature that code for `isa` needs and `features` lacks; NULL: none. `known`: whether the name
 * of the instruction set is known on this kind of machine. */
const char *cpu_missing(const char *isa, uint32_t features, bool *known);

#endif

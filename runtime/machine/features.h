/* What the machine offers: the features that instruction sets need, its caches, and how many processors there are. */
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

/* Bytes of the data cache of level 1 or 2 of one core. It is asked for once; where the system does not say, or says
 * what cannot be, it is that of a usual server. The answer decides in which order products are computed, never what
 * they give. */
int64_t cpu_cache_bytes(int level);

enum { MOST_CPUS = 1023 }; /* that are counted */

/* How many CPUs this process may use: affinity mask and quota of its control groups; at least 1. */
int32_t cpus_available(void);
/* `cpus`, or fewer if a control group allows fewer. `list` is the file that names the groups of the process, `root` the
 * folder of their limits; the tests give files of their own. */
int32_t cpus_of_control_groups(const char *list, const char *root, int32_t cpus);

#endif

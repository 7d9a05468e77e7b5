/* What the machine offers: the features of its processor, its caches, and how many processors this process may use.
 *
 * Features come from cpuid and xgetbv; an instruction set whose registers the system does not save counts as missing.
 * Processors are counted by the affinity mask and the quota of the control groups (version 2: every group from the
 * process's own up to the root; version 1: its cpu group). What cannot be read does not limit. */
#define _DEFAULT_SOURCE /* syscall */
#include "machine/features.h"

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
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

// ---- caches ----

typedef struct CacheLevel {
  int name; /* for sysconf */
  int least, most, usual; /* bytes: an answer outside [least, most] is not believed, and `usual` is taken */
} CacheLevel;

static const CacheLevel cache_levels[] = {
#ifdef _SC_LEVEL1_DCACHE_SIZE
    {_SC_LEVEL1_DCACHE_SIZE, 16 << 10, 1 << 20, 48 << 10}, {_SC_LEVEL2_CACHE_SIZE, 128 << 10, 64 << 20, 1 << 20}
#else
    {-1, 1, 0, 48 << 10}, {-1, 1, 0, 1 << 20}
#endif
};

int64_t cpu_cache_bytes(int level) {
  static _Atomic int64_t known[sizeof cache_levels / sizeof *cache_levels]; /* 0: not asked yet */
  int64_t bytes = atomic_load_explicit(&known[level - 1], memory_order_relaxed);
  if (bytes) return bytes;
  const CacheLevel *info = &cache_levels[level - 1];
  bytes = sysconf(info->name);
  if (bytes < info->least || bytes > info->most) bytes = info->usual;
  atomic_store_explicit(&known[level - 1], bytes, memory_order_relaxed);
  return bytes;
}

// ---- processors ----

enum { PATH_LENGTH = 512 };

/* A machine with more CPUs than cpu_set_t can hold makes the call fail: then there are more than MOST_CPUS. */
static int32_t cpus_of_affinity(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set)) return MOST_CPUS; /* more CPUs than the set can hold */
  int n = CPU_COUNT(&set);
  return n < 1 ? 1 : n;
}

/* The CPUs that quota / period are worth, rounded up; 0: no limit. */
static int32_t cpus_of_quota(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return 0;
  long long cpus = (quota + period - 1) / period;
  return cpus > MOST_CPUS ? MOST_CPUS : (int32_t)cpus;
}

/* "200000 100000" in cpu.max: 2 CPUs. */
static int32_t read_version_2(const char *root, const char *group) {
  char path[2 * PATH_LENGTH];
  snprintf(path, sizeof path, "%s%s/cpu.max", root, group);
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  long long quota = 0, period = 0;
  int fields = fscanf(file, "%lld %lld", &quota, &period); /* "max 100000" gives no field */
  fclose(file);
  return fields == 2 ? cpus_of_quota(quota, period) : 0;
}

/* 0: there is no such file, or no number in it. */
static long long read_number(const char *root, const char *group, const char *name) {
  char path[2 * PATH_LENGTH];
  snprintf(path, sizeof path, "%s/cpu%s/%s", root, group, name);
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  long long value = 0;
  int fields = fscanf(file, "%lld", &value);
  fclose(file);
  return fields == 1 ? value : 0;
}

static int32_t read_version_1(const char *root, const char *group) {
  return cpus_of_quota(read_number(root, group, "cpu.cfs_quota_us"), read_number(root, group, "cpu.cfs_period_us"));
}

static int32_t least(int32_t a, int32_t limit) { return limit && limit < a ? limit : a; }

/* A line of the list of groups: "0::/a/b" (version 2) or "4:cpu,cpuacct:/a/b". */
static int32_t cpus_of_group(char *line, const char *root, int32_t cpus) {
  char *controllers = strchr(line, ':');
  char *group = controllers ? strchr(controllers + 1, ':') : NULL;
  if (!group) return cpus;
  *group++ = 0;
  controllers++;
  group[strcspn(group, "\n")] = 0;
  if (!*controllers) {
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
      *end = 0;
      cpus = least(cpus, read_version_2(root, group));
    }
    return cpus;
  }
  if (strcmp(controllers, "cpu") && strncmp(controllers, "cpu,", 4) && !strstr(controllers, ",cpu")) return cpus;
  cpus = least(cpus, read_version_1(root, group));
  return least(cpus, read_version_1(root, ""));
}

int32_t cpus_of_control_groups(const char *list, const char *root, int32_t cpus) {
  FILE *file = fopen(list, "re");
  if (!file) return cpus;
  char line[PATH_LENGTH];
  while (fgets(line, sizeof line, file)) cpus = cpus_of_group(line, root, cpus);
  fclose(file);
  return cpus;
}

/* The least of all limits. Any of them may change later; a pool asks once. */
int32_t cpus_available(void) {
  return cpus_of_control_groups("/proc/self/cgroup", "/sys/fs/cgroup", cpus_of_affinity());
}

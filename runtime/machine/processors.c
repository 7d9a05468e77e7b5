/* Processors are counted by the affinity mask and the quota of the control groups (version 2: every group from the
 * process's own up to the root; version 1: its cpu group). In: what the system says in /proc and /sys. Out: numbers;
 * what cannot be read does not limit, and a cache of a size that cannot be has a usual one. See processors.h. */
#include "machine/processors.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

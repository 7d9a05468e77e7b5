/* How many CPUs this process may use: the affinity mask, and the quota of its control groups (version 2: every group
 * from its own up to the root; version 1: its cpu group). What cannot be read does not limit. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "threads.h"

enum { PATH_LENGTH = 512 };

static int32_t cpus_of_affinity(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set)) return POOL_MAX_THREADS; /* more CPUs than the set can hold */
  int n = CPU_COUNT(&set);
  return n < 1 ? 1 : n;
}

/* The CPUs that quota / period are worth, rounded up; 0: no limit. */
static int32_t cpus_of_quota(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return 0;
  long long cpus = (quota + period - 1) / period;
  return cpus > POOL_MAX_THREADS ? POOL_MAX_THREADS : (int32_t)cpus;
}

static int32_t read_version_2(const char *group) {
  char path[2 * PATH_LENGTH];
  snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  long long quota = 0, period = 0;
  int fields = fscanf(file, "%lld %lld", &quota, &period); /* "max 100000" gives no field */
  fclose(file);
  return fields == 2 ? cpus_of_quota(quota, period) : 0;
}

static long long read_number(const char *group, const char *name) {
  char path[2 * PATH_LENGTH];
  snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%s/%s", group, name);
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  long long value = 0;
  int fields = fscanf(file, "%lld", &value);
  fclose(file);
  return fields == 1 ? value : 0;
}

static int32_t least(int32_t a, int32_t limit) { return limit && limit < a ? limit : a; }

/* A line of /proc/self/cgroup: "0::/a/b" (version 2) or "4:cpu,cpuacct:/a/b". */
static int32_t cpus_of_group(char *line, int32_t cpus) {
  char *controllers = strchr(line, ':');
  char *group = controllers ? strchr(controllers + 1, ':') : NULL;
  if (!group) return cpus;
  *group++ = 0;
  controllers++;
  group[strcspn(group, "\n")] = 0;
  if (!*controllers) {
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
      *end = 0;
      cpus = least(cpus, read_version_2(group));
    }
    return cpus;
  }
  if (strcmp(controllers, "cpu") && strncmp(controllers, "cpu,", 4) && !strstr(controllers, ",cpu")) return cpus;
  cpus = least(cpus, cpus_of_quota(read_number(group, "cpu.cfs_quota_us"), read_number(group, "cpu.cfs_period_us")));
  return least(cpus, cpus_of_quota(read_number("", "cpu.cfs_quota_us"), read_number("", "cpu.cfs_period_us")));
}

int32_t cpus_available(void) {
  int32_t cpus = cpus_of_affinity();
  FILE *file = fopen("/proc/self/cgroup", "re");
  if (!file) return cpus;
  char line[PATH_LENGTH];
  while (fgets(line, sizeof line, file)) cpus = cpus_of_group(line, cpus);
  fclose(file);
  return cpus;
}

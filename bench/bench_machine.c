/* The machine: arithmetic and reading from each level of memory, by one thread and by all. Half of a cache is read, so
 * that what else lives in it does not push the data out. */
#include <unistd.h>

#include "subject.h"

enum { L1 = 32 << 10, L2 = 256 << 10, L3 = 16 << 20 }; /* where the system does not say */

static size_t cache_bytes(int name, size_t usual) {
  long bytes = sysconf(name);
  return bytes > 0 ? (size_t)bytes : usual;
}

bool machine_subjects(Bench *bench) {
  const struct {
    const char *name;
    size_t per_thread, all; /* one of them */
  } levels[] = {{"L1", cache_bytes(_SC_LEVEL1_DCACHE_SIZE, L1) / 2, 0},
                {"L2", cache_bytes(_SC_LEVEL2_CACHE_SIZE, L2) / 2, 0},
                {"L3", 0, cache_bytes(_SC_LEVEL3_CACHE_SIZE, L3) / 2},
                {"memory", 0, 128 << 20}};
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
    for (int32_t threads = 1; threads <= bench->threads; threads += bench->threads > 1 ? bench->threads - 1 : 1) {
      size_t bytes = levels[i].all ? levels[i].all : levels[i].per_thread * (size_t)threads;
      subject_add(bench, "machine", levels[i].name, threads, bytes);
    }
  return true;
}

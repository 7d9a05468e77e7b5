/* The machine: arithmetic and reading from each level of memory, by one thread and by all. */
#include <unistd.h>

#include "subject.h"

static size_t l3_bytes(void) {
#ifdef _SC_LEVEL3_CACHE_SIZE
  long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return (size_t)bytes;
#endif
  return 16 << 20;
}

bool machine_subjects(Bench *bench) {
  const struct {
    const char *name;
    size_t per_thread, all; /* one of them */
  } levels[] = {{"L1", bench->target->l1_bytes / 2, 0},
                {"L2", bench->target->l2_bytes / 2, 0},
                {"L3", 0, l3_bytes() / 2},
                {"memory", 0, 128 << 20}};
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
    for (int32_t threads = 1; threads <= bench->threads; threads += bench->threads > 1 ? bench->threads - 1 : 1) {
      size_t bytes = levels[i].all ? levels[i].all : levels[i].per_thread * (size_t)threads;
      subject_add(bench, "machine", levels[i].name, threads, bytes);
    }
  return true;
}

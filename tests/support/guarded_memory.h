/* Memory behind which nothing may be read or written: it ends where a page without access begins, so what goes one
 * element too far ends the test. */
#ifndef TFM_TESTS_GUARDED_MEMORY_H
#define TFM_TESTS_GUARDED_MEMORY_H

#include <criterion/criterion.h>
#include <sys/mman.h>
#include <unistd.h>

/* How much is mapped: `bytes` in whole pages, and the page without access. */
static inline size_t guarded_mapped(size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page + page;
}

/* Zeroes. `bytes` must be a multiple of what the elements are aligned to. */
static inline void *guarded_new(size_t bytes) {
  const size_t mapped = guarded_mapped(bytes), page = (size_t)sysconf(_SC_PAGESIZE);
  char *memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  cr_assert(memory != MAP_FAILED);
  cr_assert_eq(mprotect(memory + mapped - page, page, PROT_NONE), 0);
  return memory + mapped - page - bytes;
}

static inline void guarded_free(void *memory, size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (memory) munmap((char *)memory + bytes + page - guarded_mapped(bytes), guarded_mapped(bytes));
}

#endif

/* A worker that many runs in a row do not need may look again only after any number of them: whatever count of runs it
 * finds then, the next run that needs it must begin. The test moves the count by as many runs as a worker could miss,
 * while the workers sleep, where 2^21 once looked like the past. A plain program, for the thread sanitizer. */
#define _GNU_SOURCE /* as the runtime is built */
#include "pool/pool.c"

#include <stdio.h>
#include <unistd.h>

enum { THREADS = 3, SECONDS = 60, ROUNDS = 2000, SLEEP_US = 20000 };

static _Atomic int64_t done;

static void count_parts(void *argument, PoolMember *member) {
  (void)argument;
  (void)member;
  atomic_fetch_add(&done, 1);
}

/* So many runs of no worker, which no worker sees: none is woken. */
static void miss_runs(Pool *pool, uint64_t n) {
  usleep(SLEEP_US); /* they sleep by now; one that does not sees the runs, which is right as well */
  atomic_store(&pool->signal, ((atomic_load(&pool->signal) >> ACTIVE_BITS) + n) << ACTIVE_BITS);
}

int main(void) {
  static const uint64_t missed[] = {1, (1 << 21) - 1, 1 << 21, 3 << 20, (1 << 22) - 1, 1 << 22, (1 << 22) + 1, (uint64_t)1 << 32};
  alarm(SECONDS); /* a run that never begins ends the test */
  Pool *pool = pool_create(THREADS, 0, &(tfm_allocator){0});
  if (!pool) return 1;
  int64_t expected = 0;
  for (size_t i = 0; i < sizeof missed / sizeof *missed; i++) {
    pool_run(pool, THREADS, count_parts, NULL);
    miss_runs(pool, missed[i]);
    pool_run(pool, THREADS, count_parts, NULL);
    expected += 2 * THREADS;
  }
  /* A worker that leaves the barrier late finds the word several phases ahead, after runs that did not need it. */
  for (int round = 0; round < ROUNDS; round++, expected += THREADS + 2 * 3) {
    pool_run(pool, THREADS, count_parts, NULL);
    for (int run = 0; run < 3; run++) pool_run(pool, 2, count_parts, NULL);
  }
  pool_destroy(pool);
  if (atomic_load(&done) != expected) {
    fprintf(stderr, "%lld parts of runs, expected %lld\n", (long long)atomic_load(&done), (long long)expected);
    return 1;
  }
  puts("1 passed, 0 failed");
  return 0;
}

/* The pool. Workers wait for `signal` to change: its low bits say how many threads take part, the others count runs.
 * The barrier counts arrivals; the last one moves `phase`, which the others watch. Phases never go back, so a thread
 * that sleeps through the end of a run still sees that its phase is over.
 *
 * A thread that waits spins first, then sleeps: between runs, and inside a run when there are more threads than free
 * CPUs. A sleeper counts itself before it looks at the word for the last time, and a thread that changes the word
 * looks at the count afterwards, so no sleeper is forgotten.
 *
 * tests/model runs the waiting and waking of this file in every order, under the memory model of C11. */
#include "pool/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/clock.h"
#include "base/error.h"
#include "machine/tuning.h"

enum {
  CACHE_LINE = 64,
  ACTIVE_BITS = 10, /* of the signal: POOL_MAX_THREADS fits */
  WORKER_STACK = 512 << 10
};

struct tfm_pool {
  _Alignas(CACHE_LINE) _Atomic uint64_t signal;
  _Atomic uint32_t sleeping;
  _Alignas(CACHE_LINE) _Atomic uint32_t arrived;
  _Alignas(CACHE_LINE) _Atomic uint32_t phase;
  _Atomic uint32_t sleeping_inside; /* at a barrier */
  _Alignas(CACHE_LINE) PoolWork work;
  void *argument;
  uint32_t first_phase; /* of the run */
  int32_t n_threads;
  int64_t spin_ns;
  Crowd crowd;                    /* of who has claimed the pool */
  _Atomic uint32_t stop, claimed; /* 0 or 1: RISC-V has no instructions for narrower ones */
  tfm_allocator allocator;
  pid_t process;
  size_t bytes;
  volatile char *own; /* a page that fork() wipes: 1 in the process that made the pool */
  struct Worker {
    Pool *pool;
    int32_t number;
    Waits waits; /* in its last run, but for the end; the barrier there makes it visible */
    pthread_t thread;
  } workers[];
};

// ---- waiting ----

/* Sleeps while the word has this value; may return early, so the caller looks again. */
static void futex_wait(const void *word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake_all(const void *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

typedef struct Wait {
  int64_t start, last; /* looks at the clock: the first, and the last one; 0: there was none, or it has slept since */
  int32_t lost;        /* see Waits */
} Wait;

static int64_t look_at_clock(Wait *wait) {
  const int64_t now = now_ns();
  if (wait->last && now - wait->last > NS_OF_OTHERS) wait->lost++;
  return wait->last = now;
}

/* After a look at a word that has not changed: whether to sleep now. */
static bool is_time_to_sleep(const Pool *pool, unsigned looks, Wait *wait) {
  cpu_relax();
  if (looks % LOOKS_PER_CLOCK) return false;
  const int64_t now = look_at_clock(wait);
  if (!wait->start) wait->start = now;
  if (now - wait->start >= pool->spin_ns) return true;
  if (now - wait->start > NS_BEFORE_YIELDING) sched_yield();
  return false;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the futex of the signal is its low half, which lies first");

/* Waits for a run that has another count than `seen`. Any other count is later: comparing by size would take a count
 * that is far ahead for one of the past, and a worker that many runs in a row do not need can fall behind by any
 * number. The count has 54 bits and never comes round. The futex compares the low half, which lies first
 * (little-endian). */
static uint64_t wait_for_signal(Pool *pool, uint64_t seen) {
  Wait wait = {0};
  uint64_t signal;
  for (unsigned i = 1; (signal = atomic_load_explicit(&pool->signal, memory_order_acquire)) == seen; i++) {
    if (!is_time_to_sleep(pool, i, &wait)) continue;
    atomic_fetch_add(&pool->sleeping, 1);
    while (atomic_load(&pool->signal) == seen) futex_wait(&pool->signal, (uint32_t)seen);
    atomic_fetch_sub(&pool->sleeping, 1);
  }
  return signal;
}

/* Waits until `phase` is over, that is, until the word is another than the phase before: it was that when this thread
 * arrived, and it never goes back. It may be several phases ahead, because later runs may not need this thread. */
static void wait_for_phase(PoolMember *member, uint32_t phase) {
  Pool *pool = member->pool;
  const uint32_t before = phase - 1;
  Wait wait = {0};
  for (unsigned i = 1; atomic_load_explicit(&pool->phase, memory_order_acquire) == before; i++) {
    if (!is_time_to_sleep(pool, i, &wait)) continue;
    atomic_fetch_add(&pool->sleeping_inside, 1);
    while (atomic_load(&pool->phase) == before) futex_wait(&pool->phase, before);
    atomic_fetch_sub(&pool->sleeping_inside, 1);
    wait.last = 0;
  }
  if (wait.start) member->waits.ns += look_at_clock(&wait) - wait.start;
  member->waits.lost += wait.lost;
}

/* A worker that a run does not need (its number is too high) goes on waiting. `seen` is the signal of the last run:
 * the count in it makes every run a new value, so none is missed or done twice. */
static void *worker_main(void *argument) {
  struct Worker *self = argument;
  Pool *pool = self->pool;
  for (uint64_t seen = 0;;) {
    seen = wait_for_signal(pool, seen);
    if (atomic_load_explicit(&pool->stop, memory_order_relaxed)) return NULL;
    int32_t active = (int32_t)(seen & ((1u << ACTIVE_BITS) - 1));
    if (self->number >= active) continue;
    PoolMember member = {pool, self->number, active, pool->first_phase, {0}};
    pool->work(pool->argument, &member);
    self->waits = member.waits;
    pool_barrier(&member);
  }
}

/* The store must be sequentially consistent: it is ordered before the look at `sleeping`. */
static void wake_all(Pool *pool, int32_t active) {
  uint64_t count = (atomic_load_explicit(&pool->signal, memory_order_relaxed) >> ACTIVE_BITS) + 1;
  atomic_store(&pool->signal, count << ACTIVE_BITS | (uint32_t)active);
  if (atomic_load(&pool->sleeping)) futex_wake_all(&pool->signal);
}

// ---- a run ----

static void note_run(Pool *pool, const PoolMember *caller, int64_t start) {
  const int64_t now = now_ns();
  Waits all = caller->waits;
  for (int32_t i = 1; i < caller->active; i++) {
    all.ns += pool->workers[i - 1].waits.ns;
    all.lost += pool->workers[i - 1].waits.lost;
  }
  if (crowd_note(&pool->crowd, caller->active, now - start, all)) crowd_judge(&pool->crowd, now);
}

int32_t pool_threads_now(Pool *pool, int32_t worth) {
  return pool->crowd.alone_until ? crowd_threads(&pool->crowd, worth, now_ns()) : worth;
}

/* The barrier at the end makes the results of all threads visible to the caller. */
void pool_run(Pool *pool, int32_t active, PoolWork work, void *argument) {
  PoolMember member = {pool, 0, active, atomic_load_explicit(&pool->phase, memory_order_relaxed), {0}};
  const int64_t start = active > 1 ? now_ns() : 0;
  if (active > 1) {
    pool->work = work;
    pool->argument = argument;
    pool->first_phase = member.phase;
    wake_all(pool, active);
  }
  work(argument, &member);
  pool_barrier(&member);
  if (active > 1) note_run(pool, &member, start);
}

/* The last to arrive resets the count before it moves the phase: nobody can arrive at the next barrier before that. */
void pool_barrier(PoolMember *member) {
  if (member->active == 1) return;
  Pool *pool = member->pool;
  uint32_t phase = ++member->phase;
  if (atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) == (uint32_t)member->active - 1) {
    atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
    atomic_store(&pool->phase, phase);
    if (atomic_load(&pool->sleeping_inside)) futex_wake_all(&pool->phase);
    return;
  }
  wait_for_phase(member, phase);
}

// ---- beginning and end ----

/* Stops at the first thread that the system refuses; the pool then has fewer. Workers block all signals. */
static void start_workers(Pool *pool, int32_t threads) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes)) return;
  pthread_attr_setstacksize(&attributes, WORKER_STACK);
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the host's, never a worker's */
  for (; pool->n_threads < threads; pool->n_threads++) {
    struct Worker *worker = &pool->workers[pool->n_threads - 1];
    *worker = (struct Worker){.pool = pool, .number = pool->n_threads};
    if (pthread_create(&worker->thread, &attributes, worker_main, worker)) break;
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attributes);
}

/* A page that reads 1 in this process and 0 after a fork: cheaper to ask than getpid for every run. NULL: the kernel
 * has no MADV_WIPEONFORK; the process id is compared instead. */
static volatile char *page_of_this_process(void) {
  size_t size = (size_t)sysconf(_SC_PAGESIZE);
  char *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return NULL;
  if (madvise(page, size, MADV_WIPEONFORK)) {
    munmap(page, size);
    return NULL;
  }
  *page = 1;
  return page;
}

Pool *pool_create(int32_t threads, int64_t spin_ns, const tfm_allocator *allocator) {
  if (threads > POOL_MAX_THREADS) threads = POOL_MAX_THREADS;
  size_t bytes = sizeof(Pool) + sizeof(struct Worker) * (size_t)(threads - 1);
  Pool *pool = allocate(allocator, bytes, CACHE_LINE);
  if (!pool) return NULL;
  *pool = (Pool){.n_threads = 1, .spin_ns = spin_ns, .process = getpid(), .allocator = *allocator, .bytes = bytes};
  if (threads > 1) {
    pool->own = page_of_this_process();
    start_workers(pool, threads);
  }
  return pool;
}

int32_t pool_threads(const Pool *pool) { return pool->n_threads; }

/* Acquire: what the run before wrote to the pool is visible. */
bool pool_claim(Pool *pool) {
  return pool_alive(pool) && !atomic_exchange_explicit(&pool->claimed, true, memory_order_acquire);
}

void pool_release(Pool *pool) { atomic_store_explicit(&pool->claimed, false, memory_order_release); }

/* After a fork the child has the memory of the pool, but none of its threads. */
bool pool_alive(const Pool *pool) {
  if (pool->n_threads == 1) return true;
  return pool->own ? *pool->own == 1 : getpid() == pool->process;
}

/* In a forked child there is nobody to join: only the memory is freed. */
void pool_destroy(Pool *pool) {
  if (!pool) return;
  if (pool_alive(pool)) {
    atomic_store(&pool->stop, true);
    wake_all(pool, 0);
    for (int32_t i = 1; i < pool->n_threads; i++) pthread_join(pool->workers[i - 1].thread, NULL);
  }
  if (pool->own) munmap((void *)pool->own, (size_t)sysconf(_SC_PAGESIZE));
  const tfm_allocator allocator = pool->allocator;
  release(&allocator, pool, pool->bytes);
}

// ---- how many threads, and how long they spin ----

enum { MOST_SPIN_US = 10 * 1000 * 1000 };

/* A number from the environment in [least, most]; anything else that stands there is ignored. */
static int64_t number_from_environment(const char *name, int64_t least, int64_t most, int64_t otherwise) {
  const char *text = getenv(name);
  if (!text || !*text) return otherwise;
  char *end;
  long long value = strtoll(text, &end, 10);
  return *end || value < least || value > most ? otherwise : value;
}

int32_t pool_threads_wanted(int32_t asked) {
  if (asked <= 0) asked = (int32_t)number_from_environment("TFM_NUM_THREADS", 1, POOL_MAX_THREADS, 0);
  if (asked <= 0) asked = cpus_available();
  return asked < POOL_MAX_THREADS ? asked : POOL_MAX_THREADS;
}

int64_t pool_spin_ns(int32_t spin_us) {
  if (spin_us < 0) return 0;
  if (spin_us > 0) return spin_us * INT64_C(1000);
  return number_from_environment("TFM_SPIN_US", 0, MOST_SPIN_US, DEFAULT_SPIN_US) * 1000;
}

// ---- pools that contexts share ----

tfm_status tfm_pool_create(int32_t threads, tfm_pool **pool, tfm_error *error) {
  if (!pool) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "there is no place for the pool");
  *pool = pool_create(pool_threads_wanted(threads), pool_spin_ns(0), &(tfm_allocator){0});
  if (*pool) return tfm_succeed(error);
  return tfm_fail(error, TFM_E_NOMEM, TFM_REASON_OTHER, NULL, "no memory for a pool");
}

void tfm_pool_destroy(tfm_pool *pool) { pool_destroy(pool); }

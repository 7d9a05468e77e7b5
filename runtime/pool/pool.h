/* A pool of threads that work on one thing at a time: one wake-up per run, barriers inside it.
 *
 * In: a function and how many threads shall run it; the caller is thread 0. Out: returns when all have finished.
 * Between runs workers spin for a while, then sleep. A pool that went through fork() has no workers in the child:
 * pool_alive says so, and it can still be destroyed there. Creating fewer threads than asked for is no error.
 *
 * A pool that contexts share works for one of them at a time: a run that cannot claim it does everything in the thread
 * of its caller, with the same bits, rather than wait. */
#ifndef TFM_RUNTIME_POOL_H
#define TFM_RUNTIME_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "machine/features.h"
#include "tfm/tfm.h"

typedef struct tfm_pool Pool;

typedef struct PoolMember { /* a thread inside a run */
  Pool *pool;
  int32_t thread, active; /* its number, how many there are */
  uint32_t phase;
} PoolMember;

typedef void (*PoolWork)(void *argument, PoolMember *member);

enum { POOL_MAX_THREADS = MOST_CPUS };

/* How many threads to make when the caller asks for `asked`; 0 or less: TFM_NUM_THREADS, else the CPUs this process
 * may use. */
int32_t pool_threads_wanted(int32_t asked);
/* What tfm_context_options.spin_us says, in nanoseconds; 0 in it stands for TFM_SPIN_US, else DEFAULT_SPIN_US. */
int64_t pool_spin_ns(int32_t spin_us);
/* NULL if there is no memory. `spin_ns`: how long idle workers spin before they sleep. */
Pool *pool_create(int32_t threads, int64_t spin_ns, const tfm_allocator *allocator);
void pool_destroy(Pool *pool); /* NULL is ignored */
/* Whether the caller has the pool now, until pool_release; false if another run has it or there are no workers. */
bool pool_claim(Pool *pool);
void pool_release(Pool *pool);
int32_t pool_threads(const Pool *pool); /* the caller included */
bool pool_alive(const Pool *pool);
/* active <= pool_threads; 1 unless the pool is claimed. */
void pool_run(Pool *pool, int32_t active, PoolWork work, void *argument);
/* Returns when every active thread of the run has called it. */
void pool_barrier(PoolMember *member);

static inline void cpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// ---- shares of a step ----

/* How threads share the units of a step. Each thread owns a contiguous part; one that has finished its own takes units
 * from the end of another's. Exactly one thread does each unit, and no number depends on which one it is.
 *
 * Units form a grid of `blocks` x `groups`, which a grid of threads, `down` x `across`, cuts into parts. A thread walks
 * its part block by block, and keeps most of it without claims where units are short. Claims are not reset between
 * steps: a slot with the serial of an earlier step counts as untouched, which saves a barrier. */
enum {
  SHARE_MAX_UNITS = (1 << 20) - 1, /* of one thread; see share_coarsen */
  SHARE_MAX_SERIAL = (1 << 24) - 1
};

typedef struct ClaimSlot {
  _Alignas(64) _Atomic uint64_t state; /* serial, first unit left, end of the units left */
} ClaimSlot;

typedef struct Claims {
  ClaimSlot *slots; /* one per thread */
  uint32_t serial;  /* of the last step that used them, carried from run to run */
  uint32_t next;    /* the same after the present run: a thread on its way into that still begins with `serial` */
} Claims;

typedef struct Grid {
  int64_t blocks, groups;
  int32_t down, across;
} Grid;

typedef struct Part { /* of one thread */
  int64_t first_block, end_block, first_group, end_group;
} Part;

typedef struct Claimer { /* a thread in one step */
  Claims *claims;
  Grid grid;
  uint32_t serial;
  int32_t thread, threads, victim;
  int64_t next; /* of what needs no claims: all units of a thread that is alone, else those that it keeps */
  bool keeps;   /* units are short: owners keep three quarters of their parts, or all if these are small */
  Part own; /* as share_part gives it */
} Claimer;

/* A grid for `threads`: across the groups if there are enough of them, else down the blocks too. */
Grid share_grid(int64_t blocks, int64_t groups, int32_t threads);
Part share_part(const Grid *grid, int32_t thread);
/* How many consecutive units to treat as one, so that no thread's part has more than SHARE_MAX_UNITS. */
int64_t share_coarsen(int64_t units);
/* The next unit for this thread; false if none is left. */
bool share_claim(Claimer *claimer, int64_t *block, int64_t *group);

#endif

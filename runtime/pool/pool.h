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

#include "machine/machine.h"
#include "machine/processors.h"
#include "pool/crowd.h"
#include "tfm/abi/cpu.h"
#include "tfm/tfm.h"

typedef struct tfm_pool Pool;

typedef struct PoolMember { /* a thread inside a run */
  Pool *pool;
  int32_t thread, active; /* its number, how many there are */
  uint32_t phase;
  Waits waits; /* at barriers, as far as the clock was looked at */
} PoolMember;

typedef void (*PoolWork)(void *argument, PoolMember *member);

enum { POOL_MAX_THREADS = MOST_CPUS };

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
/* The threads for the next run of a claimed pool, of as many as it is worth: 1 while other work has the CPUs. */
int32_t pool_threads_now(Pool *pool, int32_t worth);
/* active <= pool_threads; 1 unless the pool is claimed. */
void pool_run(Pool *pool, int32_t active, PoolWork work, void *argument);
/* Returns when every active thread of the run has called it. */
void pool_barrier(PoolMember *member);

#endif

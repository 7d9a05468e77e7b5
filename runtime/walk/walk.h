/* Runs: what threads do with a bound context. See walk.c. */
#ifndef TFM_RUNTIME_WALK_H
#define TFM_RUNTIME_WALK_H

#include "steps/walker.h"

/* Executes the steps of a bound context whose `callers` are set, and those of its lockstep runs. A call from
 * outside may consist of many runs, and one cancellation ends all of them: each entry point calls run_forget_cancelled
 * once, before its first run, and run_steps leaves the flag alone. */
static inline void run_forget_cancelled(tfm_context *context) {
  atomic_store_explicit(&context->stop->run, false, memory_order_relaxed);
}
tfm_status run_steps(tfm_context *context, tfm_error *error);

// ---- a thread's way through the steps ----

struct Course { /* of a thread through a run */
  bool any, others;  /* steps before this one: any at all; the last one by all threads */
  uint32_t last;     /* the last one, counted from 1 */
  uint64_t *profile; /* NULL: not asked for, or not this thread's to write */
  uint64_t start;    /* of the present step, ns */
};

/* Whether nobody does step number `step`; in lockstep runs only if all runs skip it. */
bool walk_is_idle(const tfm_context *first, uint32_t step);
bool walk_has_fault(tfm_context *first); /* of the context or one of its lockstep runs */
/* A step of one context by `threads` threads, of which this one is number `thread`. */
void walk_step(Walker *walker, tfm_context *context, uint32_t number, int32_t thread, int32_t threads);
void course_end_step(Course *course, uint32_t step, bool shared);

#endif

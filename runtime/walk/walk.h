/* Runs: what threads do with a bound context. See walk.c. */
#ifndef TFM_RUNTIME_WALK_H
#define TFM_RUNTIME_WALK_H

#include "steps/walker.h"

/* Executes the steps of bound contexts whose `callers` are set: of one, or of those that a call has. The pool, the
 * profile and the flag of a cancellation are those of the first. A call from outside may consist of many runs, and one
 * cancellation ends all of them: each entry point calls run_forget_cancelled once, before its first run, and the runs
 * leave the flag alone. */
static inline void run_forget_cancelled(tfm_context *context) {
  atomic_store_explicit(&context->stop->run, false, memory_order_relaxed);
}
tfm_status run_steps(tfm_context *context, tfm_error *error);
tfm_status walk_run(const RunCall *call, tfm_error *error);

// ---- a thread's way through the steps ----

struct Course { /* of a thread through a run */
  bool any, others;  /* steps before this one: any at all; the last one by all threads */
  uint32_t last;     /* the last one, counted from 1 */
  uint64_t *profile; /* NULL: not asked for, or not this thread's to write */
  uint64_t start;    /* of the present step, ns */
};

/* Whether nobody does step number `step`: all parts skip it. */
bool walk_is_idle(const RunCall *call, uint32_t step);
bool walk_has_fault(const RunCall *call); /* of any part */
/* A step of one part by `threads` threads, of which this one is number `thread`. */
void walk_step(Walker *walker, const RunPart *part, uint32_t number, int32_t thread, int32_t threads);
void course_end_step(Course *course, uint32_t step, bool shared);

#endif

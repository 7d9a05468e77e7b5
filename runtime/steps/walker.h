/* What the drivers of steps (drivers.def) have in common: they are the loops around generated kernels.
 *
 * Each is called by every thread that works on the step and does that thread's part. Work is cut over results only,
 * never over a sum, so no number depends on how many threads there are. Nothing is refused here: a fault (tfm_fault,
 * FAULT_IDS) is recorded in RunState.faults and reported when the run ends. */
#ifndef TFM_RUNTIME_WALKER_H
#define TFM_RUNTIME_WALKER_H

#include "context/step_operands.h"
#include "machine/machine.h"
#include "machine/tuning.h"
#include "steps/live_runs.h"
#include "steps/run_call.h"

struct Walker { /* a thread on its way through the steps */
  const RunCall *call;
  const RunPart *part;  /* of the call, which the step is done for */
  tfm_context *context; /* of the part */
  PoolMember *member;
  int32_t thread, threads; /* for the present step */
  int32_t *faults;         /* what kernels of this thread found in the present step: tfm_fault */
  char *scratch;           /* context.scratch_bytes, 64-byte aligned */
  uint32_t serial;         /* of the claims */
  const RowShare *rows;    /* in a chain of rows: those that it does; NULL: its share of all of them */
  bool of_all;             /* a gemm: the rows of all parts of the call */
};

/* step_ids.c: the error for a computed id that step number `step` found. */
tfm_status ids_report_computed(const tfm_context *context, uint32_t step, tfm_error *error);

/* The rows that the thread does of a step with so many rows; `live` may have no mask. */
static inline RowShare rows_of_thread(const Walker *walker, const LiveRows *live, int64_t rows) {
  return walker->rows ? *walker->rows : live_share(live, rows, walker->thread, walker->threads);
}

/* Rows of results that a tile will write. */
static inline void fetch_rows_for_writing(const float *c, int64_t stride, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i++, c += stride)
    for (int64_t j = 0; j < columns; j += ALIGNMENT / (int64_t)sizeof(float)) fetch_for_writing(c + j);
}

/* Shares `blocks` x `groups` units among the threads of the step. A step that one thread does alone takes no serial:
 * nobody else looks at its claims. */
static inline Claimer walker_claimer(Walker *walker, int64_t blocks, int64_t groups) {
  if (walker->threads > 1) walker->serial++;
  return share_claimer(&walker->context->run.claims, walker->serial, walker->thread, walker->threads, blocks, groups);
}

static inline void *kernel_of(const tfm_context *context, uint32_t kernel) {
  return kernel == TFM_NONE ? NULL : context->program->kernels[kernel];
}

/* C does not convert a pointer to an object into one to a function; a union does, on every system that has dlsym. */
#define KERNEL_OF(Type, context, kernel) \
  (((union { void *object; Type function; }){kernel_of((context), (kernel))}).function)

#endif

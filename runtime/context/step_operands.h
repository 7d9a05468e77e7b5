/* What a context keeps of each step: the operands that it holds itself, and how it is run with the bound sizes.
 *
 * In: the table of steps. Out: a struct for the operands of each kind. Nothing is refused here. */
#ifndef TFM_RUNTIME_STEP_OPERANDS_H
#define TFM_RUNTIME_STEP_OPERANDS_H

#include "context/context_state.h"
#include "tfm/abi/drivers.h"

/* The operands that a step holds itself, by the names in the table of steps. An operand that the step does not have is
 * zero. The mask of live rows is always called `mask`. */
#define READ(member, axes) Operand member;
#define WRITE(member, axes) Operand member;
#define WRITE_IF(flag, member, axes) Operand member;
#define CACHED(cache, member, axes) Operand member;
#define MASK(axes) Operand mask;
#define READ_LIST(from)
#define WRITE_LIST()
#define TEXT(member)
#define STEP(KIND, name, array, fields, operands) \
  struct name##_operands {                                \
    operands                                              \
  };
#include "tfm/abi/steps.def"

union StepOperands {
#define STEP(KIND, name, ...) struct name##_operands name;
#include "tfm/abi/steps.def"
};

enum { MOST_STEP_OPERANDS = sizeof(StepOperands) / sizeof(Operand) };
_Static_assert(MOST_STEP_OPERANDS * sizeof(Operand) == sizeof(StepOperands), "a step's operands are an array of them");

static inline const StepOperands *operands_of(const tfm_context *context, const tfm_step *step) {
  return &context->run.step_operands[step - context->program->steps];
}

struct StepState {
  const tfm_driver *driver;
  int64_t work;     /* ns of one core */
  bool parallel;    /* worth all threads of the run */
  _Atomic int64_t counted[2]; /* of a gradient: steps of k that are not zero, in runs so far; see RunState.turn */
  bool skipped;     /* in this run: its output is not wanted */
  bool idle, shared; /* with lockstep runs: skipped in all of them; done by all threads */
  uint32_t next_gemm; /* the next gemm step, TFM_NONE after the last */
  const Operand *results[MOST_RESULTS]; /* what it writes; NULL: no more */
};

typedef struct Walker Walker; /* steps/walker.h */
typedef struct Course Course; /* walk/walk.h */

#endif

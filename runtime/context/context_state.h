/* The context: a program with its weights, bound to sizes, and the memory it works in.
 *
 * Binding works out and keeps what depends on sizes alone: values of the polynomials, offsets of the buffers,
 * addresses and strides of the operands, how many threads each step is worth. A run adds the caller's addresses,
 * nothing else. Each part of the struct has one owner, a file that writes it; everybody may read it. */
#ifndef TFM_RUNTIME_CONTEXT_STATE_H
#define TFM_RUNTIME_CONTEXT_STATE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/numbers.h"
#include "pool/pool.h"
#include "pool/share.h"
#include "tfm/abi/program.h"

enum {
  MOST_RESULTS = 5,    /* operands that a step writes */
  FAULT_IDS = 1 << 16, /* beside the bits of tfm_fault: a computed id is out of its range */
  FAULT_CANCELLED = 1 << 17
};

typedef struct Operand { /* a tfm_operand for the bound sizes */
  uintptr_t address;             /* slot -1: of the first element; else bytes from the caller's tensor to it */
  int32_t slot;                  /* the caller's tensor in RunState.callers, or -1 */
  uint8_t bytes, gathered;       /* bytes of an element; see tfm_operand */
  int64_t strides[TFM_MAX_RANK]; /* bytes */
} Operand;

typedef union StepOperands StepOperands; /* step_operands.h */
typedef struct StepState StepState;

// ---- the parts of a context, each with the file that owns it ----

typedef struct Binding { /* sizes.c, context_inputs.c: the sizes, and what they make of the program's numbers */
  bool bound, prepared;    /* sizes are known; the results of the prepare steps are valid for them */
  bool values_stale;       /* some values are not those of the symbols */
  int64_t *input_dims;     /* TFM_MAX_RANK per input */
  int64_t *output_dims;    /* TFM_MAX_RANK per output */
  int64_t *symbols;        /* values of the run-time sizes */
  int32_t *symbol_inputs;  /* for messages: the input that bound each, -1: none yet */
  int64_t *values;         /* of the polynomials */
  uint64_t *value_symbols; /* the sizes that each depends on */
  float *values_f32;       /* the same values as scalars that kernels read */
  int32_t *values_i32;
  bool *condition_stack;
} Binding;

typedef struct BufferLife { /* as the plan of the memory takes it */
  uint32_t first_step, last_step;
} BufferLife;

typedef struct Consumed { /* a gemm whose results a run may hand on unit by unit (run_call.h) */
  uint32_t step;
  int64_t panels; /* of a unit; the last one may have fewer. 0: there is no such gemm */
} Consumed;

typedef struct Memory { /* workspace.c: the workspace and what lies where in it */
  bool keeps_room;         /* see context_reserve_symbols */
  bool chained;            /* the plan lets threads take rows through chains (tfm_row_chain) */
  Consumed consumed;       /* scratch has room for a unit */
  int64_t spare_bytes;     /* of each buffer: the parts of lockstep runs begin at multiples of ALIGNMENT */
  int64_t *buffer_bytes;   /* room that each has in the plan: sizes that need no more keep the plan */
  int64_t *buffer_offsets; /* in the workspace */
  int64_t *buffer_taken;   /* by this run and the lockstep runs so far */
  uint32_t *buffer_order;  /* scratch of the planner */
  BufferLife *lives;       /* the same */
  char *workspace;
  int64_t workspace_bytes; /* what is there */
  int64_t buffers_bytes, scratch_bytes, used_bytes; /* all buffers; scratch of one thread; both for all threads */
} Memory;

typedef struct RunState { /* operands.c, walk/walk.c: operands with their addresses, and how far a run has come */
  Operand *operands;           /* of program.operands */
  StepOperands *step_operands; /* of each step */
  uint64_t *operand_symbols, *step_symbols; /* the sizes that each operand, and the operands of each step, depend on */
  uint64_t operands_stale;     /* sizes that changed since the operands were resolved */
  StepState *steps;
  void **callers;              /* addresses of inputs, then outputs, in this run */
  Claims claims;               /* one slot per thread */
  int32_t active, last_active; /* threads for a run with the bound sizes; of the last run */
  uint64_t *profile;           /* NULL: not asked for */
  bool goes_on;           /* sums of outputs that say so go on from the run before */
  bool waits;             /* they are not complete: a run follows that goes on */
  int32_t turn;           /* 0 or 1: what such a run finds, and leaves in the other place (StepState) */
  void *const *rests;     /* by output: room for such sums beside it, between runs; NULL: this run is the only one */
  uint32_t committed;     /* of this run: the first step that writes an output; from there on cancelling is too late */
  _Atomic int32_t faults; /* of this run */
  _Atomic uint32_t faulty_step;    /* with ids out of their range */
  _Atomic uint32_t dividing_step;  /* the first that a thread saw divide by zero */
} RunState;

typedef struct Stop { /* set by tfm_context_cancel, cleared by who begins a run or a call */
  _Atomic uint32_t run;  /* 0 or 1: a run, or a call of a decoder, is to end */
  _Atomic uint32_t call; /* so is what goes on after it: a generation is more than one run */
} Stop;

struct tfm_context {
  const tfm_program *program;
  const char *weights;
  tfm_allocator allocator;
  size_t bytes;    /* of the block that holds the context and all its arrays */
  int32_t threads; /* of the pool, the caller included */
  bool owns_pool;
  Pool *pool;
  Binding binding;
  Memory memory;
  RunState run;
  Stop own_stop, *stop; /* stop: its own, or that of the context whose call this one serves */
  void *owner; /* what was made with the context for more than runs (library/handle.h); NULL: nothing */
  int64_t *asked;   /* the run-time sizes of a call by its args */
  tfm_value *given; /* of the same args: inputs, then outputs */
};

static inline int64_t value_of(const tfm_context *context, tfm_size size) { return context->binding.values[size]; }

/* The element `offset` bytes behind the first one. Computed as a number: a tensor without bytes may lie at NULL, and C
 * does not allow anything to be added to that. */
static inline char *element_address(const tfm_context *context, const Operand *operand, int64_t offset) {
  uintptr_t base = operand->slot < 0 ? 0 : (uintptr_t)context->run.callers[operand->slot];
  return (char *)(base + operand->address + (uintptr_t)offset);
}

static inline char *operand_address(const tfm_context *context, const Operand *operand) {
  return element_address(context, operand, 0);
}

/* Whether the operand lies in an output that the caller does not want. */
static inline bool operand_unwanted(const tfm_context *context, const Operand *operand) {
  return operand->slot >= 0 && !context->run.callers[operand->slot];
}

static inline uint8_t dtype_size(uint8_t dtype) { return dtype == TFM_BOOL ? 1 : 4; }

#endif

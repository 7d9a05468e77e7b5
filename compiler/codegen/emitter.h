/* Emitter: what every function that emits code has at hand: builder, types, the target, the function being written.
 *
 * In: a module and a target. Out: instructions where the builder stands. Nothing here knows any kernel. The emitter
 * owns its builder (emitter_destroy); the module and the arena belong to the caller. Refuses nothing: misuse is a
 * CHECK. */
#ifndef TFM_CODEGEN_EMITTER_H
#define TFM_CODEGEN_EMITTER_H

#include <llvm-c/Core.h>
#include <stdbool.h>

#include "base/arena.h"
#include "target/target.h"

enum { EMIT_MAX_INTRINSICS = 32 };

typedef struct EmittedIntrinsic { /* declarations already made, looked up by name and type */
  const char *name;
  LLVMTypeRef types[2];
  LLVMValueRef declaration;
  LLVMTypeRef function_type;
} EmittedIntrinsic;

typedef struct Emitter {
  Arena *arena; /* for what is needed while code is emitted */
  LLVMContextRef context;
  LLVMModuleRef module;
  LLVMBuilderRef builder;
  const TargetInfo *target;
  LLVMValueRef function;
  unsigned n_vectors; /* vectors of a Lanes that are in use (vector.h) */
  LLVMTypeRef i1, i8, i16, i32, i64, f32, f64, pointer, nothing;
  EmittedIntrinsic intrinsics[EMIT_MAX_INTRINSICS];
  unsigned n_intrinsics;
} Emitter;

Emitter emitter_new(Arena *arena, LLVMModuleRef module, const TargetInfo *target);
void emitter_destroy(Emitter *e);

/* Begins a function; the builder then stands in its entry block. The function unwinds nothing and is hidden, so that a
 * library exports only what its header declares. */
LLVMValueRef emit_function(Emitter *e, const char *name, LLVMTypeRef type);
/* Takes out of the function, which is whole, what nothing uses: a pass over rows prepares the addresses of all
 * operands, and LLVM would look for the best way to each before it sees that some are not needed. */
void emit_leave_out_unused(Emitter *e);
/* Promises to LLVM about pointer parameter `i`, which callers must keep: nothing else in the function reaches what it
 * points to; the function only reads it. */
void emit_parameter_noalias(Emitter *e, unsigned i);
void emit_parameter_readonly(Emitter *e, unsigned i);
LLVMBasicBlockRef emit_block(Emitter *e, const char *name);
void emit_jump(Emitter *e, LLVMBasicBlockRef block);
void emit_branch(Emitter *e, LLVMValueRef condition, LLVMBasicBlockRef yes, LLVMBasicBlockRef no);
void emit_at(Emitter *e, LLVMBasicBlockRef block);

LLVMValueRef emit_i64(Emitter *e, int64_t value);
LLVMValueRef emit_i32(Emitter *e, int64_t value);
LLVMValueRef emit_f32(Emitter *e, double value);

LLVMValueRef emit_add(Emitter *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef emit_sub(Emitter *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef emit_mul(Emitter *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef emit_icmp(Emitter *e, LLVMIntPredicate predicate, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef emit_select(Emitter *e, LLVMValueRef condition, LLVMValueRef yes, LLVMValueRef no);
/* The smaller of two i64, unsigned. */
LLVMValueRef emit_least(Emitter *e, LLVMValueRef a, LLVMValueRef b);

LLVMValueRef emit_offset(Emitter *e, LLVMValueRef pointer, LLVMValueRef bytes);
LLVMValueRef emit_load(Emitter *e, LLVMTypeRef type, LLVMValueRef pointer, unsigned alignment);
LLVMValueRef emit_store(Emitter *e, LLVMValueRef value, LLVMValueRef pointer, unsigned alignment);
/* The same where nobody reads the memory soon: its lines are not read first. Not ordered with other stores before a
 * fence. Aligned to the value. */
void emit_store_past_caches(Emitter *e, LLVMValueRef value, LLVMValueRef pointer, unsigned alignment);
/* Lanes whose mask is false are not touched; they are loaded as 0. */
LLVMValueRef emit_load_masked(Emitter *e, LLVMTypeRef vector, LLVMValueRef pointer, LLVMValueRef mask,
                              unsigned alignment);
void emit_store_masked(Emitter *e, LLVMValueRef value, LLVMValueRef pointer, LLVMValueRef mask, unsigned alignment);
/* Memory of the stack frame: made once, however often the code that uses it runs. */
LLVMValueRef emit_stack(Emitter *e, LLVMTypeRef type, unsigned alignment);
/* A request to bring a cache line near; harmless at any address. `locality` 3: L1, 2: L2. */
void emit_prefetch(Emitter *e, LLVMValueRef pointer, unsigned locality);
/* Calls the intrinsic `name` (a literal) overloaded by `type` (NULL: not overloaded), or by two types. */
LLVMValueRef emit_intrinsic(Emitter *e, const char *name, LLVMTypeRef type, unsigned n, LLVMValueRef *arguments);
LLVMValueRef emit_intrinsic2(Emitter *e, const char *name, LLVMTypeRef first, LLVMTypeRef second, unsigned n,
                             LLVMValueRef *arguments);

// ---- loops and conditions ----

/* Loops: counted loops with carried values.
 *
 *   Loop loop = loop_begin(e, start, end, step);
 *   LLVMValueRef sum = loop_carry(e, &loop, zero);       before anything else in the body
 *   ... loop.index ...
 *   loop_next(&loop, 0, new_sum);
 *   loop_end(e, &loop);                                  loop.results[0]: the last value, or zero if nothing ran
 *
 * The body runs while index < end (signed), tested before the first time and after each. */

enum { LOOP_MAX_CARRIED = 32 };

typedef struct Loop {
  LLVMBasicBlockRef before, body, after;
  LLVMValueRef end, step;
  LLVMValueRef index; /* i64 */
  LLVMValueRef last;  /* after loop_end: the first index that was not run */
  unsigned n;
  LLVMValueRef phis[LOOP_MAX_CARRIED], initial[LOOP_MAX_CARRIED], next[LOOP_MAX_CARRIED], results[LOOP_MAX_CARRIED];
} Loop;

Loop loop_begin(Emitter *e, LLVMValueRef start, LLVMValueRef end, int64_t step);
LLVMValueRef loop_carry(Emitter *e, Loop *loop, LLVMValueRef initial);
void loop_next(Loop *loop, unsigned i, LLVMValueRef value);
void loop_end(Emitter *e, Loop *loop);

/* if (condition) { ... }: from if_begin to if_end. */
typedef struct If {
  LLVMBasicBlockRef after;
} If;

If if_begin(Emitter *e, LLVMValueRef condition);
void if_end(Emitter *e, If *branch);

#endif

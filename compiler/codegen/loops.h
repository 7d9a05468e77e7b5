/* Loops: counted loops with carried values.
 *
 *   Loop loop = loop_begin(e, start, end, step);
 *   LLVMValueRef sum = loop_carry(e, &loop, zero);       before anything else in the body
 *   ... loop.index ...
 *   loop_next(&loop, 0, new_sum);
 *   loop_end(e, &loop);                                  loop.results[0]: the last value, or zero if nothing ran
 *
 * The body runs while index < end (signed), tested before the first time and after each. */
#ifndef TFM_CODEGEN_LOOPS_H
#define TFM_CODEGEN_LOOPS_H

#include "codegen/emitter.h"

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

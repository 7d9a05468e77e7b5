/* In: bounds and values. Out: blocks with phi nodes; the test stands at the end of the body, so a loop costs one branch
 * per turn without any pass over the IR. */
#include "codegen/loops.h"

#include "base/check.h"

Loop loop_begin(Emitter *e, LLVMValueRef start, LLVMValueRef end, int64_t step) {
  Loop loop = {.before = LLVMGetInsertBlock(e->builder),
               .body = emit_block(e, "loop"),
               .after = emit_block(e, "after"),
               .end = end,
               .step = emit_i64(e, step)};
  emit_branch(e, emit_icmp(e, LLVMIntSLT, start, end), loop.body, loop.after);
  emit_at(e, loop.body);
  loop.index = loop_carry(e, &loop, start);
  loop.n = 0;
  loop.last = start;
  return loop;
}

LLVMValueRef loop_carry(Emitter *e, Loop *loop, LLVMValueRef initial) {
  CHECK(loop->n < LOOP_MAX_CARRIED, "a loop that carries more than %d values", LOOP_MAX_CARRIED);
  LLVMValueRef phi = LLVMBuildPhi(e->builder, LLVMTypeOf(initial), "");
  LLVMAddIncoming(phi, &initial, &loop->before, 1);
  loop->phis[loop->n] = phi;
  loop->initial[loop->n] = initial;
  loop->next[loop->n] = phi;
  loop->n++;
  return phi;
}

void loop_next(Loop *loop, unsigned i, LLVMValueRef value) { loop->next[i] = value; }

static LLVMValueRef after_value(Emitter *e, Loop *loop, LLVMBasicBlockRef latch, LLVMValueRef initial,
                                LLVMValueRef last) {
  LLVMValueRef phi = LLVMBuildPhi(e->builder, LLVMTypeOf(initial), "");
  LLVMValueRef values[] = {initial, last};
  LLVMBasicBlockRef blocks[] = {loop->before, latch};
  LLVMAddIncoming(phi, values, blocks, 2);
  return phi;
}

void loop_end(Emitter *e, Loop *loop) {
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(e->builder);
  LLVMValueRef next = LLVMBuildNSWAdd(e->builder, loop->index, loop->step, "");
  LLVMAddIncoming(loop->index, &next, &latch, 1);
  for (unsigned i = 0; i < loop->n; i++) LLVMAddIncoming(loop->phis[i], &loop->next[i], &latch, 1);
  emit_branch(e, emit_icmp(e, LLVMIntSLT, next, loop->end), loop->body, loop->after);
  LLVMMoveBasicBlockAfter(loop->after, latch);
  emit_at(e, loop->after);
  loop->last = after_value(e, loop, latch, loop->last, next);
  for (unsigned i = 0; i < loop->n; i++)
    loop->results[i] = after_value(e, loop, latch, loop->initial[i], loop->next[i]);
}

If if_begin(Emitter *e, LLVMValueRef condition) {
  LLVMBasicBlockRef yes = emit_block(e, "then");
  If branch = {.after = emit_block(e, "after")};
  emit_branch(e, condition, yes, branch.after);
  emit_at(e, yes);
  return branch;
}

void if_end(Emitter *e, If *branch) {
  emit_jump(e, branch->after);
  LLVMMoveBasicBlockAfter(branch->after, LLVMGetInsertBlock(e->builder));
  emit_at(e, branch->after);
}

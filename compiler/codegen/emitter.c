/* In: a module and a target. Out: functions, blocks, scalars, memory accesses and loops, as kernels need them. */
#include "codegen/emitter.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

Emitter emitter_new(Arena *arena, LLVMModuleRef module, const TargetInfo *target) {
  LLVMContextRef context = LLVMGetModuleContext(module);
  return (Emitter){
      .arena = arena,
      .context = context,
      .module = module,
      .builder = LLVMCreateBuilderInContext(context),
      .target = target,
      .n_vectors = 1,
      .i1 = LLVMInt1TypeInContext(context),
      .i8 = LLVMInt8TypeInContext(context),
      .i16 = LLVMInt16TypeInContext(context),
      .i32 = LLVMInt32TypeInContext(context),
      .i64 = LLVMInt64TypeInContext(context),
      .f32 = LLVMFloatTypeInContext(context),
      .f64 = LLVMDoubleTypeInContext(context),
      .pointer = LLVMPointerTypeInContext(context, 0),
      .nothing = LLVMVoidTypeInContext(context),
  };
}

void emitter_destroy(Emitter *e) { LLVMDisposeBuilder(e->builder); }

// ---- functions and blocks ----

/* Kinds of attributes are numbers that change from one LLVM to the next, so they are looked up by name. */
static LLVMAttributeRef enum_attribute(Emitter *e, const char *name) {
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  CHECK(kind, "LLVM has no attribute %s", name);
  return LLVMCreateEnumAttribute(e->context, kind, 0);
}

static void function_text_attribute(Emitter *e, const char *name, const char *value) {
  LLVMAttributeRef attribute =
      LLVMCreateStringAttribute(e->context, name, (unsigned)strlen(name), value, (unsigned)strlen(value));
  LLVMAddAttributeAtIndex(e->function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, attribute);
}

/* LLVM's x86 back end prefers vectors of 256 bits on many CPUs even where 512 exist, and would split a tile's
 * registers; the two width attributes forbid that. no-builtins keeps LLVM from turning a loop into a call of memset or
 * memcpy: a kernel must call nothing. */
LLVMValueRef emit_function(Emitter *e, const char *name, LLVMTypeRef type) {
  e->function = LLVMAddFunction(e->module, name, type);
  LLVMSetVisibility(e->function, LLVMHiddenVisibility);
  LLVMAddAttributeAtIndex(e->function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, enum_attribute(e, "nounwind"));
  char bits[16];
  snprintf(bits, sizeof bits, "%u", e->target->vector_floats * 32);
  function_text_attribute(e, "prefer-vector-width", bits);
  function_text_attribute(e, "min-legal-vector-width", bits);
  function_text_attribute(e, "no-builtins", "true");
  emit_at(e, emit_block(e, "entry"));
  return e->function;
}

/* Whether it does nothing but give its value. */
static bool only_gives_a_value(LLVMValueRef instruction) {
  switch (LLVMGetInstructionOpcode(instruction)) {
    case LLVMLoad: return !LLVMGetVolatile(instruction) && LLVMGetOrdering(instruction) == LLVMAtomicOrderingNotAtomic;
    case LLVMStore:
    case LLVMCall:
    case LLVMFence:
    case LLVMAtomicRMW:
    case LLVMAtomicCmpXchg: return false;
    default: return !LLVMIsATerminatorInst(instruction);
  }
}

/* From the last instruction to the first, so that what only unused ones use goes too. */
void emit_leave_out_unused(Emitter *e) {
  for (LLVMBasicBlockRef block = LLVMGetLastBasicBlock(e->function); block; block = LLVMGetPreviousBasicBlock(block)) {
    LLVMValueRef before;
    for (LLVMValueRef at = LLVMGetLastInstruction(block); at; at = before) {
      before = LLVMGetPreviousInstruction(at);
      if (!LLVMGetFirstUse(at) && only_gives_a_value(at)) LLVMInstructionEraseFromParent(at);
    }
  }
}

void emit_parameter_noalias(Emitter *e, unsigned i) {
  LLVMAddAttributeAtIndex(e->function, i + 1, enum_attribute(e, "noalias"));
}

void emit_parameter_readonly(Emitter *e, unsigned i) {
  LLVMAddAttributeAtIndex(e->function, i + 1, enum_attribute(e, "readonly"));
}

LLVMBasicBlockRef emit_block(Emitter *e, const char *name) {
  return LLVMAppendBasicBlockInContext(e->context, e->function, name);
}

void emit_jump(Emitter *e, LLVMBasicBlockRef block) { LLVMBuildBr(e->builder, block); }

void emit_branch(Emitter *e, LLVMValueRef condition, LLVMBasicBlockRef yes, LLVMBasicBlockRef no) {
  LLVMBuildCondBr(e->builder, condition, yes, no);
}

void emit_at(Emitter *e, LLVMBasicBlockRef block) { LLVMPositionBuilderAtEnd(e->builder, block); }

// ---- scalars ----

LLVMValueRef emit_i64(Emitter *e, int64_t value) { return LLVMConstInt(e->i64, (unsigned long long)value, 1); }
LLVMValueRef emit_i32(Emitter *e, int64_t value) { return LLVMConstInt(e->i32, (unsigned long long)value, 1); }
LLVMValueRef emit_f32(Emitter *e, double value) { return LLVMConstReal(e->f32, value); }

/* Kernels are written for any column, vector or line, of which many are the first: what would add 0 or multiply by 1 is
 * left out here, a twentieth of all instructions, each of which LLVM would look at many times. */
static bool is_one(LLVMValueRef value) { return LLVMIsAConstantInt(value) && LLVMConstIntGetZExtValue(value) == 1; }

LLVMValueRef emit_add(Emitter *e, LLVMValueRef a, LLVMValueRef b) {
  if (LLVMIsNull(a)) return b;
  return LLVMIsNull(b) ? a : LLVMBuildAdd(e->builder, a, b, "");
}

LLVMValueRef emit_sub(Emitter *e, LLVMValueRef a, LLVMValueRef b) {
  return LLVMIsNull(b) ? a : LLVMBuildSub(e->builder, a, b, "");
}

LLVMValueRef emit_mul(Emitter *e, LLVMValueRef a, LLVMValueRef b) {
  if (LLVMIsNull(a) || is_one(b)) return a;
  return LLVMIsNull(b) || is_one(a) ? b : LLVMBuildMul(e->builder, a, b, "");
}

LLVMValueRef emit_icmp(Emitter *e, LLVMIntPredicate predicate, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildICmp(e->builder, predicate, a, b, "");
}

LLVMValueRef emit_select(Emitter *e, LLVMValueRef condition, LLVMValueRef yes, LLVMValueRef no) {
  return LLVMBuildSelect(e->builder, condition, yes, no, "");
}

/* Unsigned: used for counts, which are never negative. */
LLVMValueRef emit_least(Emitter *e, LLVMValueRef a, LLVMValueRef b) {
  return emit_select(e, emit_icmp(e, LLVMIntULT, a, b), a, b);
}

// ---- memory ----

/* Addresses are computed in bytes, from i8: the emitter needs no struct types, and offsets are those of offsetof. */
LLVMValueRef emit_offset(Emitter *e, LLVMValueRef pointer, LLVMValueRef bytes) {
  if (LLVMIsNull(bytes)) return pointer;
  return LLVMBuildGEP2(e->builder, e->i8, pointer, &bytes, 1, "");
}

LLVMValueRef emit_load(Emitter *e, LLVMTypeRef type, LLVMValueRef pointer, unsigned alignment) {
  LLVMValueRef load = LLVMBuildLoad2(e->builder, type, pointer, "");
  LLVMSetAlignment(load, alignment);
  return load;
}

LLVMValueRef emit_store(Emitter *e, LLVMValueRef value, LLVMValueRef pointer, unsigned alignment) {
  LLVMValueRef store = LLVMBuildStore(e->builder, value, pointer);
  LLVMSetAlignment(store, alignment);
  return store;
}

void emit_store_past_caches(Emitter *e, LLVMValueRef value, LLVMValueRef pointer, unsigned alignment) {
  static const char kind[] = "nontemporal";
  LLVMMetadataRef one = LLVMValueAsMetadata(emit_i32(e, 1));
  LLVMValueRef mark = LLVMMetadataAsValue(e->context, LLVMMDNodeInContext2(e->context, &one, 1));
  LLVMSetMetadata(emit_store(e, value, pointer, alignment), LLVMGetMDKindIDInContext(e->context, kind, sizeof kind - 1),
                  mark);
}

/* An alloca in the entry block is memory of the frame; one in a loop would take new memory in every turn. */
LLVMValueRef emit_stack(Emitter *e, LLVMTypeRef type, unsigned alignment) {
  LLVMBasicBlockRef here = LLVMGetInsertBlock(e->builder);
  LLVMBasicBlockRef entry = LLVMGetEntryBasicBlock(e->function);
  LLVMValueRef first = LLVMGetFirstInstruction(entry);
  if (first) LLVMPositionBuilderBefore(e->builder, first);
  else emit_at(e, entry);
  LLVMValueRef memory = LLVMBuildAlloca(e->builder, type, "");
  LLVMSetAlignment(memory, alignment);
  emit_at(e, here);
  return memory;
}

/* Arguments of llvm.prefetch: the address, 0 for reading, the locality, 1 for data. */
void emit_prefetch(Emitter *e, LLVMValueRef pointer, unsigned locality) {
  LLVMValueRef arguments[] = {pointer, emit_i32(e, 0), emit_i32(e, locality), emit_i32(e, 1)};
  emit_intrinsic(e, "llvm.prefetch", e->pointer, 4, arguments);
}

/* Names are literals, so they may be kept as pointers. */
static EmittedIntrinsic *declare_intrinsic(Emitter *e, const char *name, LLVMTypeRef first, LLVMTypeRef second) {
  for (unsigned i = 0; i < e->n_intrinsics; i++) {
    EmittedIntrinsic *known = &e->intrinsics[i];
    if (known->types[0] == first && known->types[1] == second && strcmp(known->name, name) == 0) return known;
  }
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  CHECK(id, "LLVM has no intrinsic %s", name);
  CHECK(e->n_intrinsics < EMIT_MAX_INTRINSICS, "more than %d different intrinsics", EMIT_MAX_INTRINSICS);
  EmittedIntrinsic *entry = &e->intrinsics[e->n_intrinsics++];
  *entry = (EmittedIntrinsic){.name = name, .types = {first, second}};
  size_t n_types = second ? 2 : first ? 1 : 0;
  entry->declaration = LLVMGetIntrinsicDeclaration(e->module, id, entry->types, n_types);
  entry->function_type = LLVMIntrinsicGetType(e->context, id, entry->types, n_types);
  return entry;
}

LLVMValueRef emit_intrinsic2(Emitter *e, const char *name, LLVMTypeRef first, LLVMTypeRef second, unsigned n,
                             LLVMValueRef *arguments) {
  EmittedIntrinsic *entry = declare_intrinsic(e, name, first, second);
  return LLVMBuildCall2(e->builder, entry->function_type, entry->declaration, arguments, n, "");
}

LLVMValueRef emit_intrinsic(Emitter *e, const char *name, LLVMTypeRef type, unsigned n, LLVMValueRef *arguments) {
  return emit_intrinsic2(e, name, type, NULL, n, arguments);
}

LLVMValueRef emit_load_masked(Emitter *e, LLVMTypeRef vector, LLVMValueRef pointer, LLVMValueRef mask,
                              unsigned alignment) {
  LLVMValueRef arguments[] = {pointer, emit_i32(e, alignment), mask, LLVMConstNull(vector)};
  return emit_intrinsic2(e, "llvm.masked.load", vector, e->pointer, 4, arguments);
}

void emit_store_masked(Emitter *e, LLVMValueRef value, LLVMValueRef pointer, LLVMValueRef mask, unsigned alignment) {
  LLVMValueRef arguments[] = {value, pointer, emit_i32(e, alignment), mask};
  emit_intrinsic2(e, "llvm.masked.store", LLVMTypeOf(value), e->pointer, 4, arguments);
}

// ---- loops and conditions ----

/* A loop is emitted as it should run, since no pass over the IR will rotate it: a test before the first turn, and one
 * at the end of the body, so that each turn costs one branch. */

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

/* Carried values are phis, so they must come before anything else in the body. Until loop_next says otherwise, a value
 * stays as it is. */
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

/* The block behind a loop is reached from its end, or past it if nothing ran; the phi chooses. */
static LLVMValueRef after_value(Emitter *e, Loop *loop, LLVMBasicBlockRef latch, LLVMValueRef initial,
                                LLVMValueRef last) {
  LLVMValueRef phi = LLVMBuildPhi(e->builder, LLVMTypeOf(initial), "");
  LLVMValueRef values[] = {initial, last};
  LLVMBasicBlockRef blocks[] = {loop->before, latch};
  LLVMAddIncoming(phi, values, blocks, 2);
  return phi;
}

/* nsw: an index never overflows, because `end` and a step of a few hundred are far from the ends of an i64. The block
 * behind the loop moves behind the body, so that code lies in the order in which it runs. */
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

/* Only for effects: no value leaves the block, so there is no phi. */
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

/* In: a target whose code goes into modules. Out: the functions of the module alone. See emit_module.h. */
#include "aot/emit_module.h"

#include <string.h>

const ModuleFunction module_functions[] = {
#define FUNCTION(suffix, runtime, kind, least, result, parameters, arguments, comment) \
  {#suffix, #runtime, result, arguments},
#include "aot/module_functions.def"
    {NULL, NULL, NULL, NULL},
};

bool module_has(const char *suffix, bool embeds) {
  static const char *const left_out[] = {"open_as", "pool_new", "pool_free"};
  if (strcmp(suffix, "open") == 0) return embeds;
  for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
    if (strcmp(suffix, left_out[i]) == 0) return false;
  return true;
}

void module_set_pointers(LLVMModuleRef module) { LLVMSetDataLayout(module, "e-p:32:32"); }

/* A number that LLVM cannot know: it is read back from memory. */
static LLVMValueRef hidden(LLVMBuilderRef builder, LLVMTypeRef type, double number) {
  LLVMValueRef room = LLVMBuildAlloca(builder, type, "");
  LLVMSetVolatile(LLVMBuildStore(builder, LLVMConstReal(type, number), room), true);
  LLVMValueRef value = LLVMBuildLoad2(builder, type, room, "");
  LLVMSetVolatile(value, true);
  return value;
}

/* (1 + 2^-12)^2 is 1 + 2^-11 + 2^-24, which rounds to 1 + 2^-11: only a fused product leaves 2^-24 of it. */
static LLVMValueRef ask(LLVMModuleRef module, LLVMBuilderRef builder, const char *intrinsic) {
  LLVMContextRef context = LLVMGetModuleContext(module);
  LLVMTypeRef one = LLVMFloatTypeInContext(context), four = LLVMVectorType(one, 4);
  const double numbers[] = {1 + 0x1p-12, 1 + 0x1p-12, -1 - 0x1p-11};
  LLVMValueRef arguments[3], zero = LLVMConstInt(LLVMInt32TypeInContext(context), 0, false);
  for (unsigned i = 0; i < 3; i++) {
    LLVMValueRef number = hidden(builder, one, numbers[i]);
    LLVMValueRef first = LLVMBuildInsertElement(builder, LLVMGetPoison(four), number, zero, "");
    LLVMValueRef all = LLVMConstNull(LLVMVectorType(LLVMInt32TypeInContext(context), 4));
    arguments[i] = LLVMBuildShuffleVector(builder, first, first, all, "");
  }
  const unsigned id = LLVMLookupIntrinsicID(intrinsic, strlen(intrinsic));
  LLVMValueRef function = LLVMGetIntrinsicDeclaration(module, id, &four, 1);
  LLVMValueRef sums = LLVMBuildCall2(builder, LLVMIntrinsicGetType(context, id, &four, 1), function, arguments, 3, "");
  LLVMValueRef sum = LLVMBuildExtractElement(builder, sums, zero, "");
  return LLVMBuildFCmp(builder, LLVMRealUNE, sum, LLVMConstReal(one, 0), "");
}

void emit_fused(LLVMModuleRef module, const char *name, const TargetInfo *target) {
  LLVMContextRef context = LLVMGetModuleContext(module);
  LLVMTypeRef word = LLVMInt32TypeInContext(context);
  LLVMValueRef function = LLVMAddFunction(module, name, LLVMFunctionType(word, NULL, 0, false));
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, function, ""));
  LLVMValueRef is_fused = target->fma_of_register
                              ? LLVMBuildZExt(builder, ask(module, builder, target->fma_of_register), word, "")
                              : LLVMConstInt(word, target->has_fma, false);
  LLVMBuildRet(builder, is_fused);
  LLVMDisposeBuilder(builder);
}

void emit_command(LLVMModuleRef module, LLVMValueRef library, const char *weights) {
  LLVMContextRef context = LLVMGetModuleContext(module);
  LLVMTypeRef nothing = LLVMVoidTypeInContext(context), pointer = LLVMPointerTypeInContext(context, 0);
  LLVMTypeRef type = LLVMFunctionType(nothing, (LLVMTypeRef[]){pointer, pointer}, 2, false);
  LLVMValueRef command = LLVMAddFunction(module, "tfm_command", type);
  LLVMValueRef start = LLVMAddFunction(module, "_start", LLVMFunctionType(nothing, NULL, 0, false));
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMSetVisibility(command, LLVMHiddenVisibility);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, start, ""));
  LLVMValueRef file = weights ? LLVMBuildGlobalStringPtr(builder, weights, "weights") : LLVMConstNull(pointer);
  LLVMBuildCall2(builder, type, command, (LLVMValueRef[]){library, file}, 2, "");
  LLVMBuildRetVoid(builder);
  LLVMDisposeBuilder(builder);
}

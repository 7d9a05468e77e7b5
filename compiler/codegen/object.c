/* In: modules of kernels. Out: object files or assembly text in memory. */
#include <llvm-c/Analysis.h>
#include <llvm-c/Target.h>

#include "base/check.h"
#include "codegen/codegen.h"

/* Registers the backend once per call; LLVM ignores repetitions. */
static bool find_backend(Diag *diag, const TargetInfo *target, LLVMTargetRef *backend) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  char *message = NULL;
  if (!LLVMGetTargetFromTriple(target->llvm_triple, backend, &message)) return true;
  diag_error_at(diag, NULL, DIAG_TOOL, "LLVM cannot generate code for %s: %s", target->llvm_triple, message);
  LLVMDisposeMessage(message);
  return false;
}

LLVMTargetMachineRef target_machine(Diag *diag, const TargetInfo *target) {
  LLVMTargetRef backend;
  if (!find_backend(diag, target, &backend)) return NULL;
  LLVMTargetMachineRef machine =
      LLVMCreateTargetMachine(backend, target->llvm_triple, target->llvm_cpu, target->llvm_features,
                              LLVMCodeGenLevelDefault, LLVMRelocPIC, LLVMCodeModelSmall);
  if (!machine) diag_error_at(diag, NULL, DIAG_TOOL, "LLVM has no target machine for %s", target->name);
  return machine;
}

static void verify_module(LLVMModuleRef module) {
  char *message = NULL;
  bool broken = LLVMVerifyModule(module, LLVMReturnStatusAction, &message);
  CHECK(!broken, "invalid code: %s", message);
  LLVMDisposeMessage(message);
}

LLVMMemoryBufferRef emit_object(Diag *diag, LLVMModuleRef module, LLVMTargetMachineRef machine, bool assembly) {
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetModuleDataLayout(module, layout);
  LLVMDisposeTargetData(layout);
  char *triple = LLVMGetTargetMachineTriple(machine);
  LLVMSetTarget(module, triple);
  LLVMDisposeMessage(triple);
  verify_module(module);
  LLVMSetTargetMachineAsmVerbosity(machine, assembly);
  char *message = NULL;
  LLVMMemoryBufferRef buffer = NULL;
  LLVMCodeGenFileType type = assembly ? LLVMAssemblyFile : LLVMObjectFile;
  if (!LLVMTargetMachineEmitToMemoryBuffer(machine, module, type, &message, &buffer)) return buffer;
  diag_error_at(diag, NULL, DIAG_TOOL, "LLVM failed to generate code: %s", message);
  LLVMDisposeMessage(message);
  return NULL;
}

#include "aot/code_text.h"

#include "codegen/codegen.h"
#include "kernels/kernels.h"

static bool add_assembly(Diag *diag, LLVMModuleRef module, const TargetInfo *target, StrBuf *text) {
  LLVMTargetMachineRef machine = target_machine(diag, target);
  if (!machine) return false;
  LLVMMemoryBufferRef buffer = emit_object(diag, module, machine, true);
  if (buffer) {
    strbuf_add_n(text, LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer));
    LLVMDisposeMemoryBuffer(buffer);
  }
  LLVMDisposeTargetMachine(machine);
  return buffer != NULL;
}

bool code_text(Diag *diag, const Plan *plan, bool assembly, StrBuf *text) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = kernels_module(context, plan);
  bool done = true;
  if (assembly) {
    done = add_assembly(diag, module, plan->target, text);
  } else {
    char *ir = LLVMPrintModuleToString(module);
    strbuf_add(text, ir);
    LLVMDisposeMessage(ir);
  }
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  return done;
}

/* In: what the runtime finds of this CPU; modules of kernels. Out: the best row of targets[] that the CPU can run;
 * object files or assembly text in memory. Refused: targets whose back end LLVM was built without. */
#include "codegen/codegen.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "base/check.h"

// ---- the host ----

static bool is_of_host(const TargetInfo *target) { return target->family == cpu_family(); }

const char *host_lacks(const TargetInfo *target) {
  return is_of_host(target) ? target_lacks(target, cpu_features()) : target_family(target)->triple;
}

const char *host_why_not(Arena *arena, const TargetInfo *target) {
  const char *missing = host_lacks(target);
  return missing ? arena_printf(arena, is_of_host(target) ? "the CPU lacks %s" : "it is code for %s", missing) : NULL;
}

const char *host_refuses(Arena *arena, const TargetInfo *target) {
  const char *missing = host_lacks(target);
  if (!missing) return NULL;
  if (is_of_host(target))
    return arena_printf(arena, "this CPU cannot run %s code: it lacks %s", target->name, missing);
  return arena_printf(arena, "%s is code for %s; this machine is %s", target->name, target_family(target)->name,
                      family_info(cpu_family())->name);
}

/* Rows stand from the least to the most, so the last one that the host can run is the best. */
const TargetInfo *host_target(void) {
  const TargetInfo *best = &targets[0];
  for (const TargetInfo *target = targets; target->name; target++)
    if (!host_lacks(target)) best = target;
  return best;
}

const char *host_cpu_name(Arena *arena) {
  char *name = LLVMGetHostCPUName();
  const char *copy = arena_strdup(arena, name);
  LLVMDisposeMessage(name);
  return copy;
}

// ---- machines and objects ----

/* Registers the back end of a family, once: it must not change under a thread that uses it. Every additional back end
 * would add megabytes to the compiler. */
static void register_backend(tfm_family family) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static uint32_t registered;
  pthread_mutex_lock(&lock);
#define FAMILY(name, number, text, machine, llvm, backend, triple) \
  if (family == number && !(registered >> number & 1)) {           \
    LLVMInitialize##backend##TargetInfo();                         \
    LLVMInitialize##backend##Target();                             \
    LLVMInitialize##backend##TargetMC();                           \
    LLVMInitialize##backend##AsmPrinter();                         \
  }
#include "tfm/abi/families.def"
  registered |= UINT32_C(1) << family;
  pthread_mutex_unlock(&lock);
}

static bool find_backend(Diag *diag, const TargetInfo *target, LLVMTargetRef *backend) {
  const char *triple = target_family(target)->llvm_triple;
  register_backend(target->family);
  char *message = NULL;
  if (!LLVMGetTargetFromTriple(triple, backend, &message)) return true;
  diag_error_at(diag, NULL, DIAG_TOOL, "LLVM cannot generate code for %s: %s", triple, message);
  LLVMDisposeMessage(message);
  return false;
}

/* Position-independent code with the small code model: kernels call nothing, and their constants lie next to them, so
 * the same object serves the JIT and a shared library. Modules know their addresses. */
LLVMTargetMachineRef target_machine(Diag *diag, const TargetInfo *target) {
  LLVMTargetRef backend;
  if (!find_backend(diag, target, &backend)) return NULL;
  StrBuf features = strbuf_new(diag->arena);
  const LLVMRelocMode mode = family_makes_modules(target->family) ? LLVMRelocStatic : LLVMRelocPIC;
  target_llvm_features(target, &features);
  LLVMTargetMachineRef machine =
      LLVMCreateTargetMachine(backend, target_family(target)->llvm_triple, target->llvm_cpu, features.text,
                              LLVMCodeGenLevelDefault, mode, LLVMCodeModelSmall);
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

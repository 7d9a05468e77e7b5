/* In: what LLVM says of this CPU; modules of kernels. Out: the best row of targets[] that the CPU can run; object
 * files or assembly text in memory. Refused: targets whose back end LLVM was built without. */
#include "codegen/codegen.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <stddef.h>
#include <string.h>

#include "base/check.h"
#include "tfm/abi/tiles.h"

// ---- the host ----

/* Features that targets may ask for, as literals, because messages keep the names after LLVM's list is gone. Lists
 * look like "+avx,+fma". */
static const char *const features[] = {"sse2",    "avx",      "avx2",     "fma",      "f16c",
                                       "bmi",     "bmi2",     "lzcnt",    "movbe",    "popcnt",
                                       "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd",
                                       "avxvnni", "avx512vnni", "amx-tile", "amx-int8"};
enum { N_FEATURES = sizeof features / sizeof *features };

static bool list_has(const char *list, const char *feature, size_t length) {
  for (const char *at = list; *at;) {
    size_t n = strcspn(at, ",");
    if (n == length && memcmp(at, feature, n) == 0) return true;
    at += n + (at[n] == ',');
  }
  return false;
}

/* Returns the entry of the table, or words for a feature that is not in it. */
static const char *feature_name(const char *text, size_t length) {
  for (size_t i = 0; i < N_FEATURES; i++)
    if (strlen(features[i]) == length && memcmp(features[i], text, length) == 0) return features[i];
  return "a feature that tfmc does not know";
}

/* Compares the first part of the triples: features of another architecture would mean nothing here. */
static bool same_architecture(const TargetInfo *target) {
  char *host = LLVMGetDefaultTargetTriple();
  size_t n = strcspn(target->llvm_triple, "-");
  bool same = strncmp(host, target->llvm_triple, n) == 0 && host[n] == '-';
  LLVMDisposeMessage(host);
  return same;
}

const char *host_lacks(const TargetInfo *target) {
  if (!same_architecture(target)) return target->llvm_triple;
  char *present = LLVMGetHostCPUFeatures();
  const char *missing = NULL;
  for (const char *at = target->llvm_features; *at && !missing;) {
    size_t n = strcspn(at, ",");
    if (!list_has(present, at, n)) missing = feature_name(at + 1, n - 1);
    at += n + (at[n] == ',');
  }
  LLVMDisposeMessage(present);
  if (!missing && target->matrix_rows && !tfm_tiles_granted()) missing = feature_name("amx-tile", strlen("amx-tile"));
  return missing;
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


/* Registers the only back end that targets.def needs; LLVM ignores repetitions. Every additional back end would add
 * megabytes to the compiler. */
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

/* Position-independent code with the small code model: kernels call nothing, and their constants lie next to them, so
 * the same object serves the JIT and a shared library. */
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

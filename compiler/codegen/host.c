/* In: what LLVM finds out about this CPU. Out: the rows of targets[] that it can run. */
#include <llvm-c/TargetMachine.h>
#include <stddef.h>
#include <string.h>

#include "codegen/codegen.h"

/* Features that targets ask for, as they stand in lists. */
static const char *const features[] = {"+sse2", "+avx",   "+avx2",  "+fma",     "+f16c",     "+bmi",      "+bmi2",
                                       "+lzcnt", "+movbe", "+popcnt", "+avx512f", "+avx512bw", "+avx512dq", "+avx512vl",
                                       "+avx512cd"};

static bool list_has(const char *list, const char *feature) {
  size_t length = strlen(feature);
  for (const char *at = list; *at;) {
    size_t n = strcspn(at, ",");
    if (n == length && memcmp(at, feature, n) == 0) return true;
    at += n + (at[n] == ',');
  }
  return false;
}

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
  for (size_t i = 0; i < sizeof features / sizeof *features && !missing; i++)
    if (list_has(target->llvm_features, features[i]) && !list_has(present, features[i])) missing = features[i] + 1;
  LLVMDisposeMessage(present);
  return missing;
}

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

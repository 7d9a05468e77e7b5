/* In: what LLVM finds out about this CPU. Out: the rows of targets[] that it can run. */
#include <llvm-c/TargetMachine.h>
#include <stddef.h>
#include <string.h>

#include "codegen/codegen.h"

/* Features that targets may ask for; lists look like "+avx,+fma". */
static const char *const features[] = {"sse2",  "avx",   "avx2",   "fma",     "f16c",     "bmi",      "bmi2",    "lzcnt",
                                       "movbe", "popcnt", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"};
enum { N_FEATURES = sizeof features / sizeof *features };

static bool list_has(const char *list, const char *feature, size_t length) {
  for (const char *at = list; *at;) {
    size_t n = strcspn(at, ",");
    if (n == length && memcmp(at, feature, n) == 0) return true;
    at += n + (at[n] == ',');
  }
  return false;
}

/* The entry of the table, or what is said of a feature that is not in it. */
static const char *feature_name(const char *text, size_t length) {
  for (size_t i = 0; i < N_FEATURES; i++)
    if (strlen(features[i]) == length && memcmp(features[i], text, length) == 0) return features[i];
  return "a feature that tfmc does not know";
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
  for (const char *at = target->llvm_features; *at && !missing;) {
    size_t n = strcspn(at, ",");
    if (!list_has(present, at, n)) missing = feature_name(at + 1, n - 1);
    at += n + (at[n] == ',');
  }
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

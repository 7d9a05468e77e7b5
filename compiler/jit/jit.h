/* JIT: code for a plan in this process, by ORC LLJIT.
 *
 * In: a plan, and a cache of code or none. Out: plan->program with the addresses of its kernels, valid until
 * jit_destroy. The Jit lives in the arena but owns its code, so jit_destroy must be called before the arena goes. No
 * page is ever writable and executable at once. Refused: a target that this CPU cannot run (DIAG_CPU), and what LLVM
 * reports (DIAG_TOOL). */
#ifndef TFM_JIT_JIT_H
#define TFM_JIT_JIT_H

#include "jit/code_cache.h"

typedef struct Jit Jit;

typedef struct JitStatistics {
  double seconds;      /* code generation, or reading it from the cache, CPU time of the process */
  uint64_t code_bytes;
  uint32_t n_kernels;
} JitStatistics;

/* With the code that the cache has for kernels of the plan; what it has not is generated and stored. Returns NULL after
 * an error. `cache` and `statistics` may be NULL. */
Jit *jit_create(Arena *arena, Diag *diag, const Plan *plan, const CodeCache *cache, JitStatistics *statistics);
const tfm_program *jit_program(const Jit *jit);
void jit_destroy(Jit *jit);

#endif

/* In: plans. Out: kernels in executable memory, by way of one object file. See jit.h.
 *
 * ORC's memory manager writes all pages and then makes them executable and read-only, before the first address is
 * handed out. Refused: code that this CPU cannot run. */
#include "jit/jit.h"

#include <llvm-c/Core.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Object.h>
#include <string.h>
#include <time.h>

#include "codegen/codegen.h"
#include "jit/code_cache.h"
#include "kernels/kernels.h"

struct Jit {
  LLVMOrcLLJITRef lljit;
  tfm_program program;
};

/* Reports and frees an error of LLVM; true if there was one. */
static bool failed(Diag *diag, LLVMErrorRef error) {
  if (!error) return false;
  char *message = LLVMGetErrorMessage(error);
  diag_error_at(diag, NULL, DIAG_TOOL, "LLVM's JIT: %s", message);
  LLVMDisposeErrorMessage(message);
  return true;
}

/* CPU time and not elapsed time, so that a busy machine does not show in statistics. */
static double thread_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Each module has a context of its own, which goes with it: nothing is shared between plans. */
static LLVMMemoryBufferRef generate(Diag *diag, const Plan *plan, LLVMTargetMachineRef machine) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = kernels_module(context, plan);
  LLVMMemoryBufferRef object = emit_object(diag, module, machine, false);
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  return object;
}

/* A cached object is loaded exactly as a new one is, so nothing depends on where it came from. */
static LLVMMemoryBufferRef generate_cached(Diag *diag, const Plan *plan, LLVMTargetMachineRef machine,
                                           const CodeCache *cache) {
  if (!cache) return generate(diag, plan, machine);
  Arena *scratch = arena_create();
  CacheKey key = cache_key(plan);
  size_t size;
  const char *known = cache_read(scratch, cache, &key, &size);
  LLVMMemoryBufferRef object = known ? LLVMCreateMemoryBufferWithMemoryRangeCopy(known, size, "cached") : NULL;
  arena_destroy(scratch);
  if (object) return object;
  object = generate(diag, plan, machine);
  if (object) cache_write(cache, &key, LLVMGetBufferStart(object), LLVMGetBufferSize(object));
  return object;
}

/* Creating the target machine registers the back end, which loading a cached object needs too. */
static LLVMMemoryBufferRef find_object(Diag *diag, const Plan *plan, const CodeCache *cache) {
  LLVMTargetMachineRef machine = target_machine(diag, plan->target);
  if (!machine) return NULL;
  LLVMMemoryBufferRef object = generate_cached(diag, plan, machine, cache);
  LLVMDisposeTargetMachine(machine);
  return object;
}

/* Sums the sizes of all sections of instructions. */
static uint64_t code_bytes(LLVMMemoryBufferRef object) {
  uint64_t bytes = 0;
  char *message = NULL;
  LLVMContextRef context = LLVMContextCreate();
  LLVMBinaryRef binary = LLVMCreateBinary(object, context, &message);
  if (binary) {
    LLVMSectionIteratorRef section = LLVMObjectFileCopySectionIterator(binary);
    for (; !LLVMObjectFileIsSectionIteratorAtEnd(binary, section); LLVMMoveToNextSection(section)) {
      const char *name = LLVMGetSectionName(section);
      if (name && strncmp(name, ".text", 5) == 0) bytes += LLVMGetSectionSize(section);
    }
    LLVMDisposeSectionIterator(section);
    LLVMDisposeBinary(binary);
  }
  LLVMDisposeMessage(message);
  LLVMContextDispose(context);
  return bytes;
}

/* The first lookup links the object; its pages are executable and read-only from then on. */
static bool look_up(Arena *arena, Diag *diag, const Plan *plan, Jit *jit) {
  void **addresses = ARENA_ARRAY(arena, void *, plan->kernels.n);
  for (size_t i = 0; i < plan->kernels.n; i++) {
    LLVMOrcExecutorAddress address = 0;
    if (failed(diag, LLVMOrcLLJITLookup(jit->lljit, &address, plan->kernels.items[i].name))) return false;
    addresses[i] = (void *)(uintptr_t)address;
  }
  jit->program = plan->program;
  jit->program.kernels = addresses;
  jit->program.n_kernels = (uint32_t)plan->kernels.n;
  const char *whole = plan_whole_attention(plan);
  if (plan->program.n_row_chains) jit->program.chain_functions = tfm_chain_functions;
  if (plan_has_attention_grad(plan)) jit->program.attention_grad = tfm_attention_grad;
  if (whole) jit->program.whole_attention = strstr(whole, "pages") ? tfm_whole_pages : tfm_whole_attention;
  return true;
}

/* The object belongs to LLJIT once it has been handed over, even if that fails; before, it must be disposed of here. */
static bool load(Arena *arena, Diag *diag, const Plan *plan, LLVMMemoryBufferRef object, Jit *jit) {
  if (failed(diag, LLVMOrcCreateLLJIT(&jit->lljit, NULL))) {
    LLVMDisposeMemoryBuffer(object);
    return false;
  }
  LLVMOrcJITDylibRef dylib = LLVMOrcLLJITGetMainJITDylib(jit->lljit);
  if (failed(diag, LLVMOrcLLJITAddObjectFile(jit->lljit, dylib, object))) return false;
  return look_up(arena, diag, plan, jit);
}

Jit *jit_create(Arena *arena, Diag *diag, const Plan *plan, const CodeCache *cache, JitStatistics *statistics) {
  const char *lacks = host_lacks(plan->target);
  if (lacks) {
    diag_error_at(diag, NULL, DIAG_CPU, "this CPU cannot run %s code: it lacks %s", plan->target->name, lacks);
    return NULL;
  }
  double begin = thread_seconds();
  LLVMMemoryBufferRef object = find_object(diag, plan, cache);
  if (!object) return NULL;
  uint64_t bytes = statistics ? code_bytes(object) : 0;
  Jit *jit = ARENA_NEW(arena, Jit);
  if (!load(arena, diag, plan, object, jit)) {
    jit_destroy(jit);
    return NULL;
  }
  if (statistics) *statistics = (JitStatistics){thread_seconds() - begin, bytes, (uint32_t)plan->kernels.n};
  return jit;
}

const tfm_program *jit_program(const Jit *jit) { return &jit->program; }

/* Errors of taking code down have no reader and no cure. */
void jit_destroy(Jit *jit) {
  if (!jit || !jit->lljit) return;
  LLVMErrorRef error = LLVMOrcDisposeLLJIT(jit->lljit);
  if (error) LLVMConsumeError(error);
  jit->lljit = NULL;
}

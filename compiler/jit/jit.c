/* In: plans. Out: kernels in executable memory, by way of object files, which come from the cache of generated code or
 * go there (jit.h).
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
#include "kernels/kernel_module.h"
#include "tfm/abi/drivers.h"

struct Jit {
  LLVMOrcLLJITRef lljit;
  tfm_program program;
  tfm_drivers drivers; /* of the program */
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
static LLVMMemoryBufferRef generate_cached(Diag *diag, const Plan *part, LLVMTargetMachineRef machine,
                                           const CodeCache *cache, bool *is_new) {
  if (!cache) return generate(diag, part, machine);
  Arena *scratch = arena_create();
  CacheKey key = cache_key(part, "");
  size_t size;
  const char *known = cache_read(scratch, cache, &key, &size);
  LLVMMemoryBufferRef object = known ? LLVMCreateMemoryBufferWithMemoryRangeCopy(known, size, "cached") : NULL;
  arena_destroy(scratch);
  if (object) return object;
  object = generate(diag, part, machine);
  if (object) cache_write(cache, &key, LLVMGetBufferStart(object), LLVMGetBufferSize(object));
  *is_new = true;
  return object;
}

// ---- parts of a plan ----

static const char *text_without_height(Arena *arena, const KernelSpec *spec) {
  KernelSpec any = *spec;
  StrBuf text = strbuf_new(arena);
  any.rows = 0;
  kernel_spec_print(&text, &any);
  return text.text;
}

static bool calls_others(const Plan *plan) {
  for (size_t i = 0; i < plan->kernels.n; i++)
    if (plan->kernels.items[i].spec.of_one_row) return true;
  return false;
}

/* The plan with the kernels of one object only, of which `first` is the first: the tiles of one product for all numbers
 * of rows that have its width, which plans ask for together, or any other kernel alone. Models of one width have most
 * of these in common, whatever else is in them. Kernels that call each other stay together. */
static Plan next_part(Arena *scratch, const Plan *plan, size_t first) {
  Plan part = *plan;
  if (calls_others(plan)) return part;
  part.kernels.items += first;
  part.kernels.n = 1;
  const KernelSpec *spec = &part.kernels.items[0].spec;
  if (spec->family != KERNEL_TILE) return part;
  const char *text = text_without_height(scratch, spec);
  while (first + part.kernels.n < plan->kernels.n) {
    const KernelSpec *next = &part.kernels.items[part.kernels.n].spec;
    if (next->family != KERNEL_TILE || strcmp(text_without_height(scratch, next), text) != 0) break;
    part.kernels.n++;
  }
  return part;
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

/* Those that the plan needs, and no others: a program in memory can do what a library of it can. */
static void choose_drivers(uint32_t needed, tfm_drivers *drivers) {
  *drivers = (tfm_drivers){0};
#define DRIVER(NAME, run) \
  if (needed >> TFM_DRIVER_##NAME & 1) drivers->of_step[TFM_DRIVER_##NAME] = tfm_all_drivers.of_step[TFM_DRIVER_##NAME];
#define SCRATCH_DRIVER(NAME, run, scratch) DRIVER(NAME, run)
#define PART(NAME, Type, member, function) \
  if (needed >> TFM_DRIVER_##NAME & 1) drivers->member = tfm_all_drivers.member;
#include "tfm/abi/drivers.def"
}

/* The first lookup links the objects; their pages are executable and read-only from then on. */
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
  choose_drivers(plan_drivers(plan), &jit->drivers);
  jit->program.drivers = &jit->drivers;
  return true;
}

/* An object belongs to LLJIT once it has been handed over, even if that fails. */
static bool load_parts(Diag *diag, const Plan *plan, LLVMTargetMachineRef machine, const CodeCache *cache, Jit *jit,
                       uint64_t *bytes) {
  LLVMOrcJITDylibRef dylib = LLVMOrcLLJITGetMainJITDylib(jit->lljit);
  Arena *scratch = arena_create();
  bool done = true, is_new = false;
  for (size_t i = 0; done && i < plan->kernels.n;) {
    const Plan part = next_part(scratch, plan, i);
    LLVMMemoryBufferRef object = generate_cached(diag, &part, machine, cache, &is_new);
    if (object && bytes) *bytes += code_bytes(object);
    done = object && !failed(diag, LLVMOrcLLJITAddObjectFile(jit->lljit, dylib, object));
    i += part.kernels.n;
  }
  arena_destroy(scratch);
  if (is_new) cache_limit(cache);
  return done;
}

/* Creating the target machine registers the back end, which LLJIT needs too. */
static bool load(Arena *arena, Diag *diag, const Plan *plan, const CodeCache *cache, Jit *jit, uint64_t *bytes) {
  LLVMTargetMachineRef machine = target_machine(diag, plan->target);
  if (!machine) return false;
  bool done = !failed(diag, LLVMOrcCreateLLJIT(&jit->lljit, NULL));
  done = done && load_parts(diag, plan, machine, cache, jit, bytes);
  LLVMDisposeTargetMachine(machine);
  return done && look_up(arena, diag, plan, jit);
}

Jit *jit_create(Arena *arena, Diag *diag, const Plan *plan, const CodeCache *cache, JitStatistics *statistics) {
  const char *why = host_refuses(arena, plan->target);
  if (why) {
    diag_error_at(diag, NULL, DIAG_CPU, "%s", why);
    return NULL;
  }
  double begin = thread_seconds();
  uint64_t bytes = 0;
  Jit *jit = ARENA_NEW(arena, Jit);
  if (!load(arena, diag, plan, cache, jit, statistics ? &bytes : NULL)) {
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

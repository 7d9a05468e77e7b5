/* In: plans. Out: kernels in executable memory, by way of the objects of kernel_objects.h (jit.h).
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
#include "jit/kernel_objects.h"
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

/* CPU time of all threads and not elapsed time, so that a busy machine does not show in statistics. */
static double processor_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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
static void choose_drivers(DriverSet needed, tfm_drivers *drivers) {
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

/* An object belongs to LLJIT once it has been handed over, even if that fails. A cached object is loaded exactly as a
 * new one is, so nothing depends on where it came from. */
static bool load_objects(Diag *diag, const Plan *plan, const CodeCache *cache, Jit *jit, uint64_t *bytes) {
  LLVMOrcJITDylibRef dylib = LLVMOrcLLJITGetMainJITDylib(jit->lljit);
  Arena *scratch = arena_create();
  const BytesList objects = kernel_objects(scratch, diag, plan, cache);
  bool done = objects.items != NULL;
  for (size_t i = 0; done && i < objects.n; i++) {
    const Bytes *of = &objects.items[i];
    LLVMMemoryBufferRef object = LLVMCreateMemoryBufferWithMemoryRangeCopy(of->data, of->size, "kernels");
    if (bytes) *bytes += code_bytes(object);
    done = !failed(diag, LLVMOrcLLJITAddObjectFile(jit->lljit, dylib, object));
  }
  arena_destroy(scratch);
  return done;
}

/* Creating a target machine registers the back end, which LLJIT needs too, also for objects of the cache. */
static bool load(Arena *arena, Diag *diag, const Plan *plan, const CodeCache *cache, Jit *jit, uint64_t *bytes) {
  LLVMTargetMachineRef machine = target_machine(diag, plan->target);
  if (!machine) return false;
  LLVMDisposeTargetMachine(machine);
  return !failed(diag, LLVMOrcCreateLLJIT(&jit->lljit, NULL)) && load_objects(diag, plan, cache, jit, bytes) &&
         look_up(arena, diag, plan, jit);
}

Jit *jit_create(Arena *arena, Diag *diag, const Plan *plan, const CodeCache *cache, JitStatistics *statistics) {
  const char *why = host_refuses(arena, plan->target);
  if (why) {
    diag_error_at(diag, NULL, DIAG_CPU, "%s", why);
    return NULL;
  }
  double begin = processor_seconds();
  uint64_t bytes = 0;
  Jit *jit = ARENA_NEW(arena, Jit);
  if (!load(arena, diag, plan, cache, jit, statistics ? &bytes : NULL)) {
    jit_destroy(jit);
    return NULL;
  }
  if (statistics) *statistics = (JitStatistics){processor_seconds() - begin, bytes, (uint32_t)plan->kernels.n};
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

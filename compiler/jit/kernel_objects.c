/* In: kernels of a plan. Out: objects, from the cache of generated code or new (kernel_objects.h). */
#include "jit/kernel_objects.h"

#include <string.h>

#include "base/check.h"
#include "codegen/codegen.h"
#include "kernels/kernel_module.h"

// ---- parts of a plan ----

typedef struct Part {
  VEC(PlannedKernel) kernels;
} Part;

typedef struct Parts {
  Arena *arena;
  Map of_text; /* a Part by what its kernels have in common */
  VEC(Part *) items;
} Parts;

static const PlannedKernel *kernel_named(const Plan *plan, const char *name) {
  for (size_t i = 0; i < plan->kernels.n; i++)
    if (strcmp(plan->kernels.items[i].name, name) == 0) return &plan->kernels.items[i];
  CHECK(false, "no kernel %s", name);
  return NULL;
}

/* The tiles of one product for all numbers of rows, which plans ask for together, have a text; any other kernel is
 * alone. Models of one width have most of these in common, whatever else is in them. Kernels that call each other must
 * share an object. */
static const char *text_of_part(Arena *arena, const Plan *plan, const PlannedKernel *kernel) {
  if (kernel->spec.family != KERNEL_TILE) return kernel->name;
  if (kernel->spec.of_one_row) kernel = kernel_named(plan, kernel->spec.of_one_row);
  KernelSpec any = kernel->spec;
  StrBuf text = strbuf_new(arena);
  any.rows = 0;
  kernel_spec_print(&text, &any);
  return text.text;
}

static void add_kernel(Parts *parts, const Plan *plan, const PlannedKernel *kernel) {
  const char *text = text_of_part(parts->arena, plan, kernel);
  Part *part = map_get(&parts->of_text, text);
  if (!part) {
    part = ARENA_NEW(parts->arena, Part);
    map_put(&parts->of_text, text, part);
    vec_push(parts->arena, &parts->items, part);
  }
  vec_push(parts->arena, &part->kernels, *kernel);
}

/* In the order in which the first kernel of each stands in the plan. */
static Parts parts_of(Arena *arena, const Plan *plan) {
  Parts parts = {.arena = arena, .of_text = map_new(arena)};
  Map seen = map_new(arena);
  for (size_t i = 0; i < plan->kernels.n; i++) {
    const PlannedKernel *kernel = &plan->kernels.items[i];
    if (map_has(&seen, kernel->name)) continue;
    map_put(&seen, kernel->name, NULL);
    add_kernel(&parts, plan, kernel);
  }
  return parts;
}

// ---- their objects ----

Bytes object_bytes(Arena *arena, Diag *diag, LLVMModuleRef module, LLVMTargetMachineRef machine) {
  Bytes bytes = {0};
  LLVMMemoryBufferRef buffer = emit_object(diag, module, machine, false);
  if (buffer) {
    bytes.size = LLVMGetBufferSize(buffer);
    bytes.data = arena_copy(arena, LLVMGetBufferStart(buffer), bytes.size);
    LLVMDisposeMemoryBuffer(buffer);
  }
  LLVMDisposeModule(module);
  return bytes;
}

/* Each module has a context of its own, which goes with it: nothing is shared between parts. */
static Bytes generate(Arena *arena, Diag *diag, const Plan *plan, LLVMTargetMachineRef machine) {
  LLVMContextRef context = LLVMContextCreate();
  const Bytes bytes = object_bytes(arena, diag, kernels_module(context, plan), machine);
  LLVMContextDispose(context);
  return bytes;
}

/* The target machine is made for the first part that needs it. */
typedef struct Generator {
  Arena *arena;
  Diag *diag;
  const CodeCache *cache;
  LLVMTargetMachineRef machine;
  bool has_stored;
} Generator;

static Bytes object_of_part(Generator *g, const Plan *part) {
  Bytes bytes = {0};
  const CacheKey key = cache_key(part);
  if (g->cache) bytes.data = cache_read(g->arena, g->cache, &key, &bytes.size);
  if (bytes.data) return bytes;
  if (!g->machine) g->machine = target_machine(g->diag, part->target);
  if (g->machine) bytes = generate(g->arena, g->diag, part, g->machine);
  if (g->cache && bytes.data) {
    cache_write(g->cache, &key, bytes.data, bytes.size);
    g->has_stored = true;
  }
  return bytes;
}

BytesList kernel_objects(Arena *arena, Diag *diag, const Plan *plan, const CodeCache *cache) {
  Arena *scratch = arena_create();
  const Parts parts = parts_of(scratch, plan);
  Bytes *objects = ARENA_ARRAY(arena, Bytes, parts.items.n + 1);
  Generator generator = {.arena = arena, .diag = diag, .cache = cache};
  size_t n = 0;
  bool ok = true;
  for (; ok && n < parts.items.n; n++) {
    Plan part = *plan;
    part.kernels.items = parts.items.items[n]->kernels.items;
    part.kernels.n = parts.items.items[n]->kernels.n;
    objects[n] = object_of_part(&generator, &part);
    ok = objects[n].data != NULL;
  }
  if (generator.machine) LLVMDisposeTargetMachine(generator.machine);
  if (generator.has_stored) cache_limit(cache);
  arena_destroy(scratch);
  return ok ? (BytesList){objects, n} : (BytesList){0};
}

/* In: kernels of a plan. Out: objects, from the cache of generated code or new (kernel_objects.h).
 *
 * Generating code is nearly all that a compilation costs, and parts have nothing in common: each CPU takes some. */
#include "jit/kernel_objects.h"

#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "codegen/codegen.h"
#include "kernels/kernel_module.h"
#include "tfm/abi/cpu.h"

// ---- parts of a plan ----

typedef struct Part {
  VEC(PlannedKernel) kernels;
  CacheKey key;
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

static Plan plan_of_part(const Plan *plan, const Part *part) {
  Plan made = *plan;
  made.kernels.items = part->kernels.items;
  made.kernels.n = part->kernels.n;
  return made;
}

/* In the order in which the first kernel of each stands in the plan. Their keys are texts of numbers, which the locale
 * of this thread writes; threads that are made have that of the process. */
static Parts parts_of(Arena *arena, const Plan *plan) {
  Parts parts = {.arena = arena, .of_text = map_new(arena)};
  Map seen = map_new(arena);
  for (size_t i = 0; i < plan->kernels.n; i++) {
    const PlannedKernel *kernel = &plan->kernels.items[i];
    if (map_has(&seen, kernel->name)) continue;
    map_put(&seen, kernel->name, NULL);
    add_kernel(&parts, plan, kernel);
  }
  for (size_t i = 0; i < parts.items.n; i++) {
    const Plan part = plan_of_part(plan, parts.items.items[i]);
    parts.items.items[i]->key = cache_key(&part);
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

/* What all threads share. Whoever is free takes the next part; `objects` has a place for each, so their order does not
 * depend on who was faster. */
typedef struct Generation {
  const Plan *plan;
  const Parts *parts;
  const CodeCache *cache;
  Arena *arena; /* of the objects */
  Diag *diag;
  Bytes *objects;
  pthread_mutex_t lock; /* of the arena, the Diag and what follows */
  size_t next;
  bool has_failed, has_stored;
} Generation;

/* What a thread has alone: its messages, and a target machine, made for the first part that needs it. */
typedef struct Generator {
  Generation *of_all;
  Arena *arena;
  Diag diag;
  LLVMTargetMachineRef machine;
} Generator;

static Bytes object_of_part(Generator *g, const Part *part, bool *is_stored) {
  Bytes bytes = {0};
  const CodeCache *cache = g->of_all->cache;
  const Plan plan = plan_of_part(g->of_all->plan, part);
  if (cache) bytes.data = cache_read(g->arena, cache, &part->key, &bytes.size);
  *is_stored = false;
  if (bytes.data) return bytes;
  if (!g->machine) g->machine = target_machine(&g->diag, plan.target);
  if (g->machine) bytes = generate(g->arena, &g->diag, &plan, g->machine);
  *is_stored = cache && bytes.data;
  if (*is_stored) cache_write(cache, &part->key, bytes.data, bytes.size);
  return bytes;
}

static bool next_part(Generation *all, size_t *index) {
  pthread_mutex_lock(&all->lock);
  const bool has_one = !all->has_failed && all->next < all->parts->items.n;
  if (has_one) *index = all->next++;
  pthread_mutex_unlock(&all->lock);
  return has_one;
}

/* Messages of one thread are enough: one failure ends the work of all. */
static void finish_part(Generator *g, size_t index, Bytes object, bool is_stored) {
  Generation *all = g->of_all;
  pthread_mutex_lock(&all->lock);
  if (object.data) {
    all->objects[index] = (Bytes){arena_copy(all->arena, object.data, object.size), object.size};
    all->has_stored |= is_stored;
  } else if (!all->has_failed) {
    all->has_failed = true;
    for (size_t i = 0; i < g->diag.messages.n; i++)
      diag_error_at(all->diag, NULL, g->diag.messages.items[i].code, "%s", g->diag.messages.items[i].text);
  }
  pthread_mutex_unlock(&all->lock);
}

static void *generate_parts(void *context) {
  Arena *arena = arena_create();
  Generator g = {.of_all = context, .arena = arena, .diag = diag_new(arena)};
  for (size_t i = 0; next_part(g.of_all, &i);) {
    bool is_stored;
    const Bytes object = object_of_part(&g, g.of_all->parts->items.items[i], &is_stored);
    finish_part(&g, i, object, is_stored);
  }
  if (g.machine) LLVMDisposeTargetMachine(g.machine);
  arena_destroy(arena);
  return NULL;
}

/* This thread is one of them: what cannot be begun is only missing. LLVM walks expressions by recursion, and threads
 * may have small stacks. */
static void generate_with_threads(Generation *all) {
  enum { MOST_THREADS = 16, STACK_BYTES = 16 << 20 };
  pthread_t threads[MOST_THREADS];
  pthread_attr_t attributes;
  const size_t wanted = (size_t)pool_threads_wanted(0), parts = all->parts->items.n;
  size_t n = 0, most = wanted < parts ? wanted : parts;
  if (most > MOST_THREADS) most = MOST_THREADS;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  while (n + 1 < most && pthread_create(&threads[n], &attributes, generate_parts, all) == 0) n++;
  pthread_attr_destroy(&attributes);
  generate_parts(all);
  for (size_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

BytesList kernel_objects(Arena *arena, Diag *diag, const Plan *plan, const CodeCache *cache) {
  Arena *scratch = arena_create();
  const Parts parts = parts_of(scratch, plan);
  const size_t n = parts.items.n;
  Generation all = {plan, &parts, cache, arena, diag, ARENA_ARRAY(arena, Bytes, n + 1), .next = 0};
  pthread_mutex_init(&all.lock, NULL);
  generate_with_threads(&all);
  pthread_mutex_destroy(&all.lock);
  if (all.has_stored) cache_limit(cache);
  arena_destroy(scratch);
  return all.has_failed ? (BytesList){0} : (BytesList){all.objects, n};
}

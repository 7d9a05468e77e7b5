/* In: a .tfm file. Out: what jit_create and the runtime want. */
#define _DEFAULT_SOURCE /* madvise */
#include "compiling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "diag/render.h"
#include "passes/passes.h"
#include "plan/share_weights.h"
#include "weights/pack.h"

enum { HUGE_PAGE = 2 * 1024 * 1024 };

Graph *elaborate_file(Arena *arena, Diag *diag, const char *file, const ElaborateOptions *options) {
  Map *names = ARENA_NEW(arena, Map);
  *names = map_new(arena);
  ParsedProgram *program = parse_program(arena, names, diag, arena_printf(arena, "%s/%s", TFM_SOURCE_DIR, file));
  return program ? elaborate(arena, names, diag, program, options) : NULL;
}

const Plan *plan_file(Arena *arena, Diag *diag, const char *file, const TargetInfo *target, const ElaborateOptions *options) {
  Graph *graph = elaborate_file(arena, diag, file, options);
  PassOptions passes = {.level = 2};
  if (!graph || !passes_run(graph, diag, &passes, NULL)) return NULL;
  return plan_graph(arena, diag, graph, target);
}

const DecodingPlan *plan_decoding_file(Arena *arena, Diag *diag, const char *file, const TargetInfo *target) {
  const ElaborateOptions options = {0};
  const PassOptions passes = {.level = 2};
  Graph *graph = elaborate_file(arena, diag, file, &options);
  if (!graph) return NULL;
  const Incremental made = incremental_derive(arena, diag, graph, NULL);
  if (!made.step) fprintf(stderr, "%s is not incremental: %s\n", file, made.reason);
  if (!made.step || !passes_run(made.step, diag, &passes, NULL)) return NULL;
  if (made.source && !passes_run(made.source, diag, &passes, NULL)) return NULL;
  const DecodingPlan *plans = plan_decoding(arena, diag, &made, target);
  if (!plans) return NULL;
  Plan *const both[] = {plans->step, plans->source};
  share_weights(arena, both, plans->source ? 2 : 1);
  return plans;
}

bool link_decoding(Arena *arena, Diag *diag, const DecodingPlan *plans, tfm_decoding *decoding) {
  Jit *step = jit_create(arena, diag, plans->step, NULL);
  Jit *source = step && plans->source ? jit_create(arena, diag, plans->source, NULL) : NULL;
  if (!step || (plans->source && !source)) return false;
  *decoding = plans->decoding;
  decoding->step = jit_program(step);
  decoding->source = source ? jit_program(source) : NULL;
  return true;
}

char *weights_room(const Plan *plan) {
  size_t bytes = (plan->program.weights_bytes / HUGE_PAGE + 1) * HUGE_PAGE;
  char *room = aligned_alloc(HUGE_PAGE, bytes);
  if (!room) return NULL;
  madvise(room, bytes, MADV_HUGEPAGE); /* only faster */
  return memset(room, 0, bytes);
}

typedef struct Reader {
  Arena *arena;
  Diag *diag;
  const WeightSet *set;
} Reader;

static const Tensor *read_weight(void *context, const char *name) {
  const Reader *reader = context;
  const WeightEntry *entry = weight_set_find(reader->set, name);
  if (!entry) {
    diag_error_at(reader->diag, NULL, DIAG_WEIGHT_MISSING, "no weight %s", name);
    return NULL;
  }
  Tensor *tensor = tensor_new(reader->arena, DTYPE_F32, entry->tensor->rank, entry->tensor->dims);
  return safetensors_read(entry->file, reader->diag, entry->tensor, DTYPE_F32, tensor->data) ? tensor : NULL;
}

bool pack_set(Arena *arena, Diag *diag, const Plan *plan, const WeightSet *set, char *packed) {
  Reader reader = {arena, diag, set};
  return pack_weights(arena, diag, plan, read_weight, &reader, packed);
}

void print_messages(const Diag *diag) {
  Arena *scratch = arena_create();
  StrBuf text = strbuf_new(scratch);
  render_text(&text, diag, false);
  fputs(text.text, stderr);
  arena_destroy(scratch);
}

double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

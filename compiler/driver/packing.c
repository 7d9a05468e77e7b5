#define _DEFAULT_SOURCE /* madvise */
#include "driver/packing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "aot/emit_library.h"
#include "aot/library_file.h"
#include "aot/weights_file.h"
#include "driver/passes_options.h"
#include "weights/pack.h"

enum { HUGE_PAGE = 2 * 1024 * 1024 }; /* weights on such pages are read about a tenth faster */

const char *file_beside(Arena *arena, const char *output, const char *ending) {
  const char *slash = strrchr(output, '/'), *base = slash ? slash + 1 : output;
  size_t folder = (size_t)(base - output);
  if (strncmp(base, "lib", 3) == 0 && base[3]) base += 3;
  const char *dot = strrchr(base, '.');
  size_t length = dot && dot != base ? (size_t)(dot - base) : strlen(base);
  return arena_printf(arena, "%.*s%.*s%s", (int)folder, output, (int)length, base, ending);
}

const Plan *plan_for_library(Session *session, Graph *graph, const TargetInfo *target) {
  const ParsedProgram *program = session->model->program;
  const char **paths = ARENA_ARRAY(session->arena, const char *, program->files.n);
  for (size_t i = 0; i < program->files.n; i++) {
    paths[i] = program->files.items[i].source->path;
    program->files.items[i].source->path = program->files.items[i].name;
  }
  const Plan *plan = plan_graph(session->arena, &session->diag, graph, target);
  for (size_t i = 0; i < program->files.n; i++) program->files.items[i].source->path = paths[i]; /* for messages */
  return plan;
}

const Plan *plan_of_library(Session *session, Graph *graph) {
  const LibraryFile *library = session->library;
  const TargetInfo *target = target_find(library->instruction_sets[0]);
  const Plan *plan = target && run_passes(session, graph) ? plan_for_library(session, graph, target) : NULL;
  uint8_t layout[16] = {0};
  if (plan) library_layout(session->arena, plan, layout);
  if (plan && memcmp(layout, library->layout, sizeof layout) == 0) return plan;
  if (!diag_has_errors(&session->diag))
    diag_error_at(&session->diag, library->path, DIAG_LIBRARY,
                  "tfmc " TFM_VERSION
                  " packs weights in another way than tfmc %s, which made the library: compile it again",
                  library->version);
  return NULL;
}

char *pack_in_memory(Session *session, const Plan *plan, WeightSource *weights) {
  size_t alignment = plan->program.weights_bytes < HUGE_PAGE ? 64 : HUGE_PAGE;
  size_t bytes = (plan->program.weights_bytes / alignment + 1) * alignment;
  char *packed = aligned_alloc(alignment, bytes);
  if (!packed) {
    diag_error_at(&session->diag, NULL, DIAG_MEMORY, "not enough memory for %zu bytes of weights", bytes);
    return NULL;
  }
  if (alignment == HUGE_PAGE) madvise(packed, bytes, MADV_HUGEPAGE); /* only faster */
  memset(packed, 0, bytes);
  if (pack_weights(session->arena, &session->diag, plan, weight_source_get, weights, packed)) return packed;
  free(packed);
  return NULL;
}

bool write_packed(Session *session, const Plan *plan, const char *path, const char *packed) {
  uint8_t layout[16];
  library_layout(session->arena, plan, layout);
  const char *prefix = model_prefix(session->arena, plan->program.name);
  return weights_file_write(&session->diag, path, prefix, layout, packed, plan->program.weights_bytes);
}

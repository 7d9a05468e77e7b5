#define _DEFAULT_SOURCE /* madvise */
#include "driver/packing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "aot/header.h"
#include "aot/packed_weights.h"
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

bool pack_all(Session *session, Plan *const *plans, uint32_t n, WeightSource *weights, char *packed) {
  bool done = true;
  for (uint32_t i = 0; i < n && done; i++)
    done = pack_weights(session->arena, &session->diag, plans[i], weight_source_get, weights, packed);
  return done;
}

char *pack_in_memory(Session *session, Plan *const *plans, uint32_t n, WeightSource *weights) {
  const uint64_t needed = plans[0]->program.weights_bytes;
  size_t alignment = needed < HUGE_PAGE ? 64 : HUGE_PAGE;
  size_t bytes = (needed / alignment + 1) * alignment;
  char *packed = aligned_alloc(alignment, bytes);
  if (!packed) {
    diag_error_at(&session->diag, NULL, DIAG_MEMORY, "not enough memory for %zu bytes of weights", bytes);
    return NULL;
  }
  if (alignment == HUGE_PAGE) madvise(packed, bytes, MADV_HUGEPAGE); /* only faster */
  memset(packed, 0, bytes);
  if (pack_all(session, plans, n, weights, packed)) return packed;
  free(packed);
  return NULL;
}

char *pack_library(Session *session, const LibraryPlans *plans, WeightSource *weights) {
  const PlanList list = library_plan_list(plans);
  return pack_in_memory(session, list.plans, list.n, weights);
}

bool write_packed(Session *session, const LibraryPlans *plans, const char *path, const char *packed) {
  const tfm_program *program = &plans->forward->program;
  uint8_t layout[16];
  library_layout(session->arena, plans, layout);
  return weights_file_write(&session->diag, path, model_prefix(session->arena, program->name), layout, packed,
                            program->weights_bytes);
}

/* In: kernel specs, views, the numbers of a step. Out: entries of the program: kernels each once, steps in order,
 * lifetimes of buffers. */
#include <inttypes.h>

#include "plan/planner.h"

/* FNV-1a: the name depends on the text of the spec alone. */
static uint64_t hash_text(const StrBuf *text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < text->length; i++) hash = (hash ^ (unsigned char)text->text[i]) * 0x100000001b3u;
  return hash;
}

uint32_t plan_kernel(Planner *p, const KernelSpec *spec) {
  StrBuf text = strbuf_new(p->arena);
  kernel_spec_print(&text, spec);
  MapEntry *known = map_find(&p->kernels, text.text, text.length);
  if (known) return (uint32_t)(uintptr_t)known->value;
  uint32_t index = (uint32_t)p->plan->kernels.n;
  const char *name = arena_printf(p->arena, "tfm_%s_%016" PRIx64, kernel_families[spec->family].name, hash_text(&text));
  vec_push(p->arena, &p->plan->kernels, (PlannedKernel){*spec, name});
  map_put_n(&p->kernels, text.text, text.length, (void *)(uintptr_t)index);
  return index;
}

void plan_use(Planner *p, uint8_t space, uint32_t index) {
  if (space == TFM_SPACE_OUTPUT && p->stand_ins[index]) index = p->stand_ins[index] - 1;
  else if (space != TFM_SPACE_BUFFER) return;
  tfm_buffer *buffer = &p->buffers.items[index];
  uint32_t step = (uint32_t)p->steps.n;
  if (buffer->first_step == TFM_NONE) buffer->first_step = step;
  buffer->last_step = step;
}

tfm_operand plan_operand(Planner *p, const View *view) {
  plan_use(p, view->space, view->index);
  return (tfm_operand){.space = view->space, .dtype = (uint8_t)view->dtype, .index = view->index,
                       .offset = plan_size(p, view->offset)};
}

void plan_step(Planner *p, tfm_step_kind kind, size_t index, tfm_size work, const char *operation) {
  const char *path = p->node ? p->node->origin.path : NULL;
  const char *name = path && *path ? arena_printf(p->arena, "%s %s", operation, path) : operation;
  tfm_step step = {.kind = (uint8_t)kind, .prepare = p->prepare, .index = (uint32_t)index, .work = work, .name = name};
  /* Prepared results stay for runs that want other outputs; ids are checked whatever is wanted. */
  uint64_t serves = p->node ? p->values[p->node->id].serves : ALL_RUNS;
  if (!p->prepare && kind != TFM_STEP_CHECK_IDS && serves != ALL_RUNS) step.serves = serves;
  vec_push(p->arena, &p->steps, step);
}

const char *plan_place(Planner *p, const Node *node) {
  SrcSpan span = origin_place(&node->origin);
  if (!span.source) return NULL;
  SrcPlace place = source_place(span.source, span.begin);
  return arena_printf(p->arena, "%s:%u:%u", span.source->path, place.line, place.column);
}

void plan_limit(Planner *p, const char *what) {
  diag_error(p->diag, p->node ? p->node->origin.span : NO_SPAN, DIAG_LIMIT, "%s", what);
}

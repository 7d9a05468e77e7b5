#include "aot/generation.h"

#include <string.h>

static uint32_t symbol_of(const Size *size) {
  int32_t symbol = size_symbol_of(size);
  return symbol < 0 ? TFM_NONE : (uint32_t)symbol;
}

static uint32_t input_named(const Graph *graph, const char *name) {
  uint32_t i = 0;
  while (strcmp(graph->inputs.items[i]->attr.name, name) != 0) i++;
  return i;
}

static uint32_t output_named(const Graph *graph, const char *name) {
  uint32_t i = 0;
  while (strcmp(graph->outputs.items[i].name, name) != 0) i++;
  return i;
}

static const uint8_t *find_item_axes(Arena *arena, const Graph *graph, uint32_t batch) {
  uint8_t *axes = ARENA_ARRAY(arena, uint8_t, graph->inputs.n);
  for (size_t i = 0; i < graph->inputs.n && batch != TFM_NONE; i++)
    for (uint32_t axis = 0; axis < graph->inputs.items[i]->rank; axis++)
      if (size_involves(graph->inputs.items[i]->dims[axis], batch)) axes[i] |= (uint8_t)(1u << axis);
  return axes;
}

tfm_generation *generation_of(Arena *arena, const Graph *graph) {
  if (!graph->generate_input) return NULL;
  tfm_generation *made = ARENA_NEW(arena, tfm_generation);
  made->tokens = input_named(graph, graph->generate_input);
  made->scores = output_named(graph, graph->generate_output);
  const Node *tokens = graph->inputs.items[made->tokens], *scores = graph->outputs.items[made->scores].node;
  made->batch = symbol_of(tokens->dims[0]);
  made->length = symbol_of(tokens->dims[1]);
  made->bos = TFM_NO_TOKEN;
  made->item_axes = find_item_axes(arena, graph, made->batch);
  bool has_rows = made->batch != TFM_NONE || size_equals(tokens->dims[0], 1);
  bool is_known = has_rows && made->length != TFM_NONE && size_is_const(scores->dims[2], &made->vocab);
  return is_known ? made : NULL;
}

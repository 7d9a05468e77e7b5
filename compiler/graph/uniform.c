#include "graph/uniform.h"

#include <string.h>

/* A size of one item; one that overflows stays what it is. */
static const Size *of_item(const Graph *graph, const Size *size) {
  const Size *single = size ? size_with(graph->sizes, size, (uint32_t)graph->ragged_batch, 1) : NULL;
  return single ? single : size;
}

static const Cond *cond_of_item(const Graph *graph, const Cond *cond) {
  if (!cond) return NULL;
  Cond *copy = arena_copy(graph->arena, cond, sizeof *cond);
  copy->left = of_item(graph, cond->left);
  copy->right = of_item(graph, cond->right);
  copy->a = cond_of_item(graph, cond->a);
  copy->b = cond_of_item(graph, cond->b);
  return copy;
}

void graph_make_uniform(Graph *graph) {
  if (graph->ragged_batch < 0) return;
  for (size_t i = 0; i < graph->checks.n; i++) {
    Check *check = &graph->checks.items[i];
    check->condition = cond_of_item(graph, check->condition);
    for (size_t part = 0; part < check->message.n; part++)
      check->message.items[part].size = of_item(graph, check->message.items[part].size);
  }
  memset(graph->ragged, 0, sizeof graph->ragged);
  graph->ragged_batch = -1;
}

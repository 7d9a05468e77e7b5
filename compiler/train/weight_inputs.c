/* In: a graph of an objective. Out: the same with inputs in place of its weights, without what no output needs. See
 * weight_inputs.h. */
#include "train/weight_inputs.h"

#include "graph/build.h"

void train_free_weights(Arena *arena, Graph *graph) {
  for (Node *node = graph->first, *next; node; node = next) {
    next = node->next;
    if (node->op != OP_WEIGHT) continue;
    Builder builder = {.graph = graph, .before = node, .origin = node->origin};
    Node *input = build_input(&builder, arena_printf(arena, "weight.%s", node->attr.name), DTYPE_F32, node->rank,
                              (const Size *const *)node->dims);
    graph_replace_uses(graph, node, input);
    graph_delete(graph, node);
  }
  graph->declared_weights = map_new(graph->arena);
}

void train_delete_unneeded(Graph *graph) {
  for (Node *node = graph->last, *prev; node; node = prev) {
    prev = node->prev;
    if (node->op != OP_INPUT && node->users.n == 0 && !graph_is_output(graph, node)) graph_delete(graph, node);
  }
  graph_renumber(graph);
}

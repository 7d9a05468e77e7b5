/* In: a graph of an objective. Out: the same with inputs in place of its weights; without what no output needs, inputs
 * that nothing reads, checks that are another graph's. See weight_inputs.h. */
#include "train/weight_inputs.h"

#include "graph/build.h"
#include "tfm/abi/forms.h"

/* Vectors are never kept in 16 bits. Patterns are of paths; a name is the path after --weights-prefix, which training
 * does not take. */
tfm_form train_kept_form(const Objective *objective, const Node *weight) {
  if (weight->rank < 2 || objective_trains(objective, weight->attr.name)) return TFM_FORM_F32;
  switch (objective->settings.frozen) {
    case FROZEN_F32: return TFM_FORM_F32;
    case FROZEN_BF16: return TFM_FORM_BF16;
    case FROZEN_AS_STORED: return node_form(weight);
  }
  return TFM_FORM_F32;
}

static Stored stored_in(tfm_form form) {
  return form == TFM_FORM_BF16 ? STORED_BF16 : form == TFM_FORM_F16 ? STORED_F16 : STORED_ANY;
}

void train_free_weights(Arena *arena, const Objective *objective, Graph *graph) {
  for (Node *node = graph->first, *next; node; node = next) {
    next = node->next;
    if (node->op != OP_WEIGHT) continue;
    Builder builder = {.graph = graph, .before = node, .origin = node->origin};
    Node *input = build_input(&builder, arena_printf(arena, "weight.%s", node->attr.name), DTYPE_F32, node->rank,
                              (const Size *const *)node->dims);
    if (objective) input->attr.stored = stored_in(train_kept_form(objective, node));
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

void train_delete_unread_inputs(Graph *graph) {
  VEC(Node *) read = {0}, unread = {0};
  for (size_t i = 0; i < graph->inputs.n; i++) {
    Node *input = graph->inputs.items[i];
    if (input->users.n || graph_is_output(graph, input))
      vec_push(graph->arena, &read, input);
    else
      vec_push(graph->arena, &unread, input);
  }
  graph->inputs.n = 0;
  for (size_t i = 0; i < unread.n; i++) vec_push(graph->arena, &graph->inputs, unread.items[i]);
  graph_delete_inputs(graph);
  for (size_t i = 0; i < read.n; i++) vec_push(graph->arena, &graph->inputs, read.items[i]);
  graph_renumber(graph);
}

static bool mentions(const Cond *cond, uint32_t symbol) {
  if (!cond) return false;
  return (cond->left && size_involves(cond->left, symbol)) || (cond->right && size_involves(cond->right, symbol)) ||
         mentions(cond->a, symbol) || mentions(cond->b, symbol);
}

static bool has_node_of(const Graph *graph, SrcSpan span) {
  for (const Node *node = graph->first; node; node = node->next) {
    const SrcSpan other = node->origin.span;
    if (other.source == span.source && other.begin == span.begin && other.end == span.end) return true;
  }
  return false;
}

void train_drop_checks(Graph *graph, int32_t batch) {
  size_t kept = 0;
  for (size_t i = 0; i < graph->checks.n; i++) {
    const Check *check = &graph->checks.items[i];
    if (!mentions(check->condition, (uint32_t)batch) || has_node_of(graph, check->origin.span))
      graph->checks.items[kept++] = *check;
  }
  graph->checks.n = kept;
}

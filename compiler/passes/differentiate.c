/* The walk backwards. See differentiate.h; what each operation gives its inputs is in differentiate_rules.c.
 *
 * Nodes that depend on a trained weight in a differentiable way are marked; then every marked node, from the
 * last to the first, hands its cotangent on to its inputs. The nodes of the backward half are appended, so the walk
 * never meets them. What several users give is added in the order of the walk. */
#include "passes/differentiate.h"

#include "passes/pass.h"

// ---- the walk ----

/* Functions that are flat wherever they have a derivative. */
static bool is_flat(OpKind op) { return op == OP_FLOOR || op == OP_CEIL || op == OP_ROUND; }

static void mark_active(const DifferentiateRequest *request, bool *active) {
  for (const Node *node = request->graph->first; node; node = node->next) {
    if (node->dtype != DTYPE_F32 || is_flat(node->op)) continue;
    if (map_find(request->stopped, &node, sizeof node)) continue;
    if (node->op == OP_WEIGHT) active[node->id] = request->is_trained(request->context, node);
    for (size_t i = 0; i < node->inputs.n; i++) active[node->id] |= active[node->inputs.items[i]->id];
  }
}

static bool report(const DifferentiateRequest *request, const Node *node) {
  diag_error(request->diag, origin_place(&node->origin), DIAG_KIND,
             "%s cannot be differentiated, but a trained weight reaches the loss through it: stop_gradient, or freeze, "
             "says that it need not be",
             op_table[node->op].name);
  return false;
}

/* False after an error. */
static bool walk(const DifferentiateRequest *request, Backward *d, Node *last) {
  for (Node *node = last; node; node = node->prev) {
    Node *g = d->cotangents[node->id];
    if (!g || node->op == OP_WEIGHT) continue;
    BackwardRule rule = backward_rule(node->op);
    if (!rule) return report(request, node);
    int errors = d->diag->n_errors;
    d->builder.origin = node->origin;
    rule(d, node, g);
    if (d->diag->n_errors != errors) return false;
  }
  return true;
}

bool differentiate(const DifferentiateRequest *request, Gradients *gradients) {
  Graph *graph = request->graph;
  Node *last = graph->last;
  graph_renumber(graph);
  const uint32_t n = graph->next_id;
  Backward d = {.builder = {.graph = graph}, .diag = request->diag, .n_forward = n};
  d.cotangents = ARENA_ARRAY(graph->arena, Node *, n);
  d.active = ARENA_ARRAY(graph->arena, bool, n);
  mark_active(request, d.active);
  for (uint32_t i = 0; i < request->n_seeds; i++) {
    d.builder.origin = request->seeds[i].of->origin;
    if (request->seeds[i].of->id < n) backward_give(&d, request->seeds[i].of, request->seeds[i].seed);
  }
  if (!walk(request, &d, last)) return false;
  *gradients = (Gradients){0};
  for (Node *node = graph->first; node && node->id < n; node = node == last ? NULL : node->next)
    if (node->op == OP_WEIGHT && d.cotangents[node->id])
      vec_push(graph->arena, &gradients->items, (Gradient){node, d.cotangents[node->id]});
  return true;
}

/* The graphs of a batch in parts whose items are mixed. See cut_graphs.h.
 *
 * Each is a copy of the whole graph, in which the values of the cut are found by their numbers. In the mixture they are
 * weights while it is differentiated, since gradients flow to weights, and inputs afterwards. */
#include "train/cut_graphs.h"

#include <string.h>

#include "graph/build.h"
#include "train/weight_inputs.h"

const char *cut_name(Arena *arena, size_t number) { return arena_printf(arena, "train.cut.%zu", number); }

// ---- copies ----

typedef struct Copy {
  const CutGraphsRequest *request;
  CutGraphs *made;
  Graph *graph;
  Node **nodes; /* by the number of what they are copies of */
  Node **cuts;  /* of the mixture: what stands for the values of the cut */
  Map stopped;
} Copy;

static Copy copy_new(const CutGraphsRequest *request, CutGraphs *made) {
  Arena *arena = request->arena;
  Copy c = {.request = request, .made = made, .graph = graph_clone(arena, request->graph)};
  c.nodes = ARENA_ARRAY(arena, Node *, request->graph->next_id);
  c.cuts = ARENA_ARRAY(arena, Node *, made->cut.values.n + 1);
  c.stopped = map_new(arena);
  for (Node *node = c.graph->first; node; node = node->next) c.nodes[node->id] = node;
  for (size_t i = 0; i < request->stopped->n; i++) {
    const Node *node;
    memcpy(&node, request->stopped->items[i].key, sizeof node);
    map_put_n(&c.stopped, &c.nodes[node->id], sizeof(Node *), NULL);
  }
  c.graph->outputs.n = 0;
  return c;
}

static Node *copy_of(const Copy *c, const Node *node) { return c->nodes[node->id]; }

static void add_output(const Copy *c, const char *name, Node *node, Role role) {
  vec_push(c->graph->arena, &c->graph->outputs, (GraphOutput){name, node, role});
}

static void add_values(const Copy *c) {
  for (size_t i = 0; i < c->made->cut.values.n; i++)
    add_output(c, cut_name(c->request->arena, i), copy_of(c, c->made->cut.values.items[i].node), (Role){0});
}

// ---- gradients ----

static bool is_trained(const void *context, const Node *weight) {
  const Copy *c = context;
  for (size_t i = 0; i < c->made->cut.values.n; i++)
    if (c->cuts[i] == weight) return c->made->cut.values.items[i].has_gradient;
  return objective_trains(c->request->objective, weight->attr.name);
}

static bool differentiate_copy(const Copy *c, const Seed *seeds, uint32_t n, Gradients *gradients) {
  const DifferentiateRequest request = {.graph = c->graph,
                                        .diag = c->request->diag,
                                        .seeds = seeds,
                                        .n_seeds = n,
                                        .stopped = &c->stopped,
                                        .is_trained = is_trained,
                                        .context = c};
  return differentiate(&request, gradients);
}

static void add_gradient(const Copy *c, const Gradient *gradient, uint32_t number, const char *name) {
  add_output(c, arena_printf(c->request->arena, "grad.%s", name), gradient->gradient,
             (Role){ROLE_GRADIENT, number});
}

/* Of weights of the model. */
static void add_gradients(Copy *c, const Gradients *gradients, bool is_of_mixture) {
  uint32_t number = (uint32_t)c->made->cut.values.n;
  for (size_t i = 0; i < gradients->items.n; i++) {
    const Gradient *g = &gradients->items.items[i];
    const CutGradient made = {g->weight->attr.name, (uint32_t)c->graph->outputs.n};
    size_t k = 0;
    while (k < c->made->cut.values.n && c->cuts[k] != g->weight) k++;
    if (k < c->made->cut.values.n) continue;
    add_gradient(c, g, number++, made.path);
    if (is_of_mixture)
      vec_push(c->request->arena, &c->made->of_mixture, made);
    else
      vec_push(c->request->arena, &c->made->of_back, made);
  }
}

/* Behind the results, in the order of the values. One that no gradient came to is a zero everywhere. */
static void add_cotangents(Copy *c, const Gradients *gradients) {
  for (size_t i = 0; i < c->made->cut.values.n; i++) {
    if (!c->made->cut.values.items[i].has_gradient) continue;
    Builder builder = {.graph = c->graph, .origin = c->cuts[i]->origin};
    Gradient cotangent = {c->cuts[i], NULL};
    for (size_t k = 0; k < gradients->items.n; k++)
      if (gradients->items.items[k].weight == c->cuts[i]) cotangent = gradients->items.items[k];
    if (!cotangent.gradient)
      cotangent.gradient = build_full(&builder, 0, c->cuts[i]->rank, (const Size *const *)c->cuts[i]->dims);
    add_gradient(c, &cotangent, (uint32_t)i, cut_name(c->request->arena, i));
  }
}

// ---- the mixture ----

/* A weight for as long as gradients are made: other weights have no run-time sizes. */
static Node *add_weight(const Builder *b, const char *name, const Node *like) {
  Node *node = graph_add(b->graph, b->before, OP_WEIGHT, like->dtype, like->rank, (const Size *const *)like->dims, 0,
                         NULL, b->origin);
  node->attr.name = name;
  return node;
}

/* What stands for the values of the cut comes first in the graph. */
static void add_stand_ins(Copy *c) {
  Builder builder = {.graph = c->graph, .before = c->graph->first};
  for (size_t i = 0; i < c->made->cut.values.n; i++) {
    const Node *node = copy_of(c, c->made->cut.values.items[i].node);
    const char *name = cut_name(c->request->arena, i);
    builder.origin = node->origin;
    c->cuts[i] = c->made->cut.values.items[i].has_gradient
                     ? add_weight(&builder, name, node)
                     : build_input(&builder, name, node->dtype, node->rank, (const Size *const *)node->dims);
  }
}

static Node *number_of_places(const Copy *c, const Size *average) {
  size_t i = 0;
  while (item_cut_counts(&c->made->cut.values.items[i]) != average) i++;
  return c->cuts[i];
}

/* An average of all parts is their sum over the number of their places. */
static void replace_values(const Copy *c) {
  for (size_t i = 0; i < c->made->cut.values.n; i++) {
    const CutValue *value = &c->made->cut.values.items[i];
    Node *of = copy_of(c, value->of), *instead = c->cuts[i];
    Builder builder = {.graph = c->graph, .before = of, .origin = of->origin};
    if (value->average)
      instead = build_binary(&builder, OP_DIV, instead, number_of_places(c, value->average));
    graph_replace_uses(c->graph, of, instead);
  }
}

static void weights_to_inputs(const Copy *c) {
  for (size_t i = 0; i < c->made->cut.values.n; i++) {
    Node *node = c->cuts[i];
    if (node->op != OP_WEIGHT) continue;
    Builder builder = {.graph = c->graph, .before = node, .origin = node->origin};
    Node *input = build_input(&builder, cut_name(c->request->arena, i), node->dtype, node->rank,
                              (const Size *const *)node->dims);
    graph_replace_uses(c->graph, node, input);
    graph_delete(c->graph, node);
  }
}

static bool differentiate_mixture(Copy *c) {
  Gradients gradients;
  Builder builder = {.graph = c->graph, .origin = c->graph->outputs.items[0].node->origin};
  const Seed seed = {c->graph->outputs.items[0].node, build_scalar(&builder, DTYPE_F32, 1, 0)};
  if (!differentiate_copy(c, &seed, 1, &gradients)) return false;
  add_cotangents(c, &gradients);
  add_gradients(c, &gradients, true);
  return true;
}

static bool make_mixture(const CutGraphsRequest *request, CutGraphs *made) {
  Copy c = copy_new(request, made);
  for (size_t i = 0; i < request->n_results; i++)
    add_output(&c, request->results[i].name, copy_of(&c, request->results[i].node), (Role){0});
  add_stand_ins(&c);
  replace_values(&c);
  train_delete_unneeded(c.graph);
  if (request->has_gradients && !differentiate_mixture(&c)) return false;
  weights_to_inputs(&c);
  train_free_weights(request->arena, request->objective, c.graph);
  train_delete_unneeded(c.graph);
  train_delete_unread_inputs(c.graph);
  c.graph->is_of_step = request->has_gradients;
  made->mixture = c.graph;
  made->sizes = graph_sizes(c.graph, request->objective->batch);
  return true;
}

// ---- parts ----

static void make_vectors(const CutGraphsRequest *request, CutGraphs *made) {
  Copy c = copy_new(request, made);
  add_values(&c);
  train_delete_unneeded(c.graph);
  train_free_weights(request->arena, request->objective, c.graph);
  train_delete_unneeded(c.graph);
  train_drop_checks(c.graph, request->objective->batch);
  c.graph->is_of_step = request->has_gradients;
  made->vectors = c.graph;
}

/* With the values as results, so that what stands behind them is the backward half, as of a loss. */
static bool make_back(const CutGraphsRequest *request, CutGraphs *made) {
  Copy c = copy_new(request, made);
  Builder builder = {.graph = c.graph};
  VEC(Seed) seeds = {0};
  Gradients gradients;
  add_values(&c);
  for (size_t i = 0; i < made->cut.values.n; i++) {
    if (!made->cut.values.items[i].has_gradient) continue;
    Node *of = copy_of(&c, made->cut.values.items[i].node);
    builder.origin = of->origin;
    Node *seed = build_input(&builder, cut_name(request->arena, i), DTYPE_F32, of->rank,
                             (const Size *const *)of->dims);
    vec_push(request->arena, &seeds, ((Seed){of, seed}));
  }
  if (!seeds.n) return true;
  if (!differentiate_copy(&c, seeds.items, (uint32_t)seeds.n, &gradients)) return false;
  add_gradients(&c, &gradients, false);
  train_free_weights(request->arena, request->objective, c.graph);
  train_delete_unneeded(c.graph);
  train_drop_checks(c.graph, request->objective->batch);
  made->back = c.graph;
  return true;
}

bool cut_graphs(const CutGraphsRequest *request, CutGraphs **made, const Node **where) {
  const CutRequest cut = {request->kinds, request->objective, request->stopped};
  CutGraphs *graphs = ARENA_NEW(request->arena, CutGraphs);
  *made = NULL;
  *where = NULL;
  const bool is_found = item_cut_find(&cut, request->results, request->n_results, &graphs->cut);
  *where = graphs->cut.where;
  if (!is_found || !graphs->cut.values.n) return true; /* what mixes numbers of items alone is not cut either */
  graph_renumber(request->graph);
  make_vectors(request, graphs);
  if (!make_mixture(request, graphs) || (request->has_gradients && !make_back(request, graphs))) return false;
  *made = graphs;
  return true;
}

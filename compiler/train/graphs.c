/* From an objective to graphs that engines run. See graphs.h. */
#include "train/graphs.h"

#include "base/hash.h"

#include <string.h>

typedef struct Maker {
  Arena *arena;
  Diag *diag;
  Objective *objective;
  Graph *graph;
  TrainGraphs *made;
  VEC(GraphOutput) tops, bottoms;
  VEC(Seed) seeds;
} Maker;

// ---- results ----

/* "sum at 10:19": the operation, and where the text of the user has it. A size is itself. */
static void describe(StrBuf *out, const Graph *graph, const Node *node) {
  const SrcSpan span = origin_place(&node->origin);
  if (node->op == OP_SIZE) {
    strbuf_add_char(out, '(');
    size_print(out, graph->sizes, node->attr.size);
    strbuf_add_char(out, ')');
    return;
  }
  strbuf_add(out, op_table[node->op].name);
  if (!span.source) return;
  const SrcPlace place = source_place(span.source, span.begin);
  strbuf_printf(out, " at %u:%u", place.line, place.column);
}

static const char *description(const Maker *m, const LossPart *part) {
  StrBuf text = strbuf_new(m->arena);
  if (part->factor != 1) strbuf_printf(&text, "%g * ", part->factor);
  describe(&text, m->graph, part->top);
  if (part->bottom) strbuf_add(&text, " / ");
  if (part->bottom) describe(&text, m->graph, part->bottom);
  return text.text;
}

static void add_result(Maker *m, const GraphOutput *output) {
  LossParts split;
  ResultParts result = {.name = output->name};
  loss_parts(m->graph, output->node, m->objective->batch, &split);
  for (size_t i = 0; i < split.parts.n; i++) {
    const LossPart *part = &split.parts.items[i];
    ResultPart made = {.factor = part->factor, .what = description(m, part), .top = (uint32_t)m->tops.n};
    made.bottom = part->bottom ? (uint32_t)m->bottoms.n : NO_OUTPUT;
    const char *name = arena_printf(m->arena, "%s.%zu", output->name, i);
    vec_push(m->arena, &m->tops, (GraphOutput){.name = name, .node = part->top});
    if (part->bottom) vec_push(m->arena, &m->bottoms, (GraphOutput){.name = name, .node = part->bottom});
    vec_push(m->arena, &result.parts, made);
  }
  if (!m->made->whole.source) m->made->whole = split.whole;
  vec_push(m->arena, &m->made->results, result);
}

/* The outputs of the graph from here on. */
static void set_outputs(Graph *graph, const GraphOutput *items, size_t n) {
  graph->outputs.n = 0;
  for (size_t i = 0; i < n; i++) vec_push(graph->arena, &graph->outputs, items[i]);
}

// ---- gradients ----

/* Patterns are of paths; a name is the path after --weights-prefix, which training does not take. */
static bool is_trained(const void *context, const Node *weight) {
  const Objective *objective = context;
  return !patterns_match(&objective->settings.freeze, weight->attr.name);
}

static void add_seeds(Maker *m) {
  Builder builder = {.graph = m->graph};
  const ResultParts *loss = &m->made->results.items[0];
  for (size_t i = 0; i < loss->parts.n; i++) {
    Node *top = m->tops.items[loss->parts.items[i].top].node;
    builder.origin = top->origin;
    Node *seed = build_input(&builder, arena_printf(m->arena, "train.seed.%zu", i), DTYPE_F32, 0, NULL);
    vec_push(m->arena, &m->seeds, (Seed){top, seed});
    vec_push(m->arena, &m->made->seeds, seed->attr.name);
  }
}

static Map stopped_nodes(const Maker *m) {
  Map stopped = map_new(m->arena);
  for (size_t i = 0; i < m->objective->stopped.n; i++) {
    const Node *node = m->objective->stopped.items[i];
    map_put_n(&stopped, &node, sizeof node, NULL);
  }
  return stopped;
}

/* Adds the gradients as outputs behind the tops. False after an error. */
static bool add_gradients(Maker *m) {
  Gradients gradients;
  const Map stopped = stopped_nodes(m);
  add_seeds(m);
  const DifferentiateRequest request = {.graph = m->graph,
                                        .diag = m->diag,
                                        .seeds = m->seeds.items,
                                        .n_seeds = (uint32_t)m->seeds.n,
                                        .stopped = &stopped,
                                        .is_trained = is_trained,
                                        .context = m->objective};
  if (!differentiate(&request, &gradients)) return false;
  if (!gradients.items.n) {
    diag_error(m->diag, origin_place(&m->tops.items[0].node->origin), DIAG_INPUT_DECLARATION,
               "no trained weight reaches the loss '%s': there is nothing to train", m->made->results.items[0].name);
    return false;
  }
  for (size_t i = 0; i < gradients.items.n; i++) {
    const Gradient *g = &gradients.items.items[i];
    for (size_t k = 0; k < m->made->parameters.n; k++)
      if (strcmp(m->made->parameters.items[k].path, g->weight->attr.name) == 0)
        m->made->parameters.items[k].gradient = (uint32_t)m->graph->outputs.n;
    const char *name = arena_printf(m->arena, "grad.%s", g->weight->attr.name);
    vec_push(m->graph->arena, &m->graph->outputs, (GraphOutput){name, g->gradient, {ROLE_GRADIENT, (uint32_t)i}});
  }
  return true;
}

// ---- weights ----

static void list_parameter(Maker *m, const Node *node, bool is_reached) {
  Parameter p = {.path = node->attr.name, .rank = node->rank, .elements = 1, .gradient = NO_OUTPUT};
  p.is_reached = is_reached;
  p.input = arena_printf(m->arena, "weight.%s", p.path);
  for (uint32_t i = 0; i < node->rank; i++) {
    size_is_const(node->dims[i], &p.dims[i]);
    p.elements *= p.dims[i];
  }
  vec_push(m->arena, &m->made->parameters, p);
}

/* Those that the objective does not reach come last: they keep their values, and whoever runs the model needs them. */
static void list_parameters(Maker *m) {
  const Map *declared = &m->graph->declared_weights;
  Map listed = map_new(m->arena);
  for (const Node *node = m->graph->first; node; node = node->next) {
    if (node->op != OP_WEIGHT) continue;
    map_put(&listed, node->attr.name, NULL);
    list_parameter(m, node, true);
  }
  for (size_t i = 0; i < declared->n; i++)
    if (!map_has(&listed, declared->items[i].key)) list_parameter(m, declared->items[i].value, false);
}

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

static Graph *counts_graph(Maker *m) {
  if (!m->bottoms.n) return NULL;
  set_outputs(m->graph, m->bottoms.items, m->bottoms.n);
  graph_renumber(m->graph);
  Graph *counts = graph_clone(m->arena, m->graph);
  train_delete_unneeded(counts); /* with the weights that no divisor depends on */
  train_free_weights(m->arena, counts);
  return counts;
}

static uint64_t hash_of_text(Arena *arena, Graph *graph) {
  StrBuf text = strbuf_new(arena);
  graph_print(&text, graph);
  return hash_bytes(HASH_BEGIN, text.text, text.length);
}

TrainGraphs *train_graphs(Arena *arena, Diag *diag, Objective *objective, bool has_gradients) {
  Maker m = {.arena = arena, .diag = diag, .objective = objective, .graph = objective->graph};
  m.made = ARENA_NEW(arena, TrainGraphs);
  m.made->model = hash_of_text(arena, objective->graph);
  m.made->objective = objective;
  m.made->n_inputs = (uint32_t)(objective->graph->inputs.n - objective->masks.n);
  list_parameters(&m);
  const size_t n = m.graph->outputs.n;
  const GraphOutput *results = arena_copy(arena, m.graph->outputs.items, n * sizeof *results);
  for (size_t i = 0; i < n; i++) add_result(&m, &results[i]);
  m.made->counts = counts_graph(&m);
  set_outputs(m.graph, m.tops.items, m.tops.n);
  if (has_gradients && !add_gradients(&m)) return NULL;
  train_free_weights(arena, m.graph);
  train_delete_unneeded(m.graph);
  m.made->gradients = m.graph;
  return m.made;
}

// ---- for people ----

void train_graphs_print(StrBuf *out, const TrainGraphs *graphs) {
  uint32_t n_trained = 0;
  int64_t numbers = 0;
  strbuf_printf(out, "objective %s, each part summed over the batches of a step:\n", graphs->objective->name);
  for (size_t i = 0; i < graphs->results.n; i++) {
    const ResultParts *result = &graphs->results.items[i];
    strbuf_printf(out, "  %-24s ", result->name);
    for (size_t k = 0; k < result->parts.n; k++)
      strbuf_printf(out, "%s%s", k ? " + " : "", result->parts.items[k].what);
    strbuf_add_char(out, '\n');
  }
  for (size_t i = 0; i < graphs->parameters.n; i++) {
    if (graphs->parameters.items[i].gradient == NO_OUTPUT) continue;
    n_trained++;
    numbers += graphs->parameters.items[i].elements;
  }
  strbuf_printf(out, "trained: %u of %zu tensors, %lld numbers\n", n_trained, graphs->parameters.n, (long long)numbers);
}

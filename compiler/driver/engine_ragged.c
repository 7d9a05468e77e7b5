/* Compiled code, of now or of a library, for a model with ragged sizes: each item is run alone, as a batch of one with
 * sizes of its own. The interpreter takes the batch apart, checks all items before the first is computed, and puts the
 * results together. */
#include "driver/engine.h"
#include "graph/uniform.h"

typedef struct RaggedEngine {
  Engine base;
  Graph *whole;  /* what is checked */
  Engine *items; /* runs the same graph, in which every size is an ordinary one */
  const char **names;
} RaggedEngine;

static void destroy(Engine *base) { engine_destroy(((RaggedEngine *)base)->items); }

static bool run_item(void *context, const Tensor *const *inputs, Tensor *outputs) {
  RaggedEngine *engine = context;
  uint32_t n = (uint32_t)engine->whole->inputs.n;
  Tensor *given = ARENA_ARRAY(engine->base.session->arena, Tensor, n);
  for (uint32_t i = 0; i < n; i++) given[i] = *inputs[i];
  const EvalInputs item = {engine->names, given, n};
  return engine_run(engine->items, &item, outputs);
}

static bool run(Engine *base, const EvalInputs *inputs, Tensor *outputs) {
  RaggedEngine *engine = (RaggedEngine *)base;
  const EvalOptions options = {.item = run_item, .item_context = engine};
  return graph_eval_with(base->session->arena, &base->session->diag, engine->whole, NULL, NULL, inputs, &options, outputs);
}

static Engine *create(Session *session, Graph *graph, WeightSource *weights) {
  RaggedEngine *engine = ARENA_NEW(session->arena, RaggedEngine);
  engine->whole = graph_clone(session->arena, graph);
  engine->names = ARENA_ARRAY(session->arena, const char *, graph->inputs.n);
  for (size_t i = 0; i < graph->inputs.n; i++) engine->names[i] = engine->whole->inputs.items[i]->attr.name;
  if (!session->library) graph_make_uniform(graph); /* plans of a library are made of the graph as it was */
  engine->items = engine_create_whole(session->library ? &engine_library : &engine_native, session, graph, weights);
  if (!engine->items) return NULL;
  engine->base.program = engine->items->program;
  engine->base.context = engine->items->context;
  return &engine->base;
}

const EngineKind engine_ragged = {"native", create, run, destroy};

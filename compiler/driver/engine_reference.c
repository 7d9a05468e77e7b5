/* The reference interpreter as an engine: no passes, no code. */
#include "driver/engine.h"

typedef struct ReferenceEngine {
  Engine base;
  Graph *graph;
  WeightSource *weights;
} ReferenceEngine;

static Engine *create(Session *session, Graph *graph, WeightSource *weights) {
  ReferenceEngine *engine = ARENA_NEW(session->arena, ReferenceEngine);
  engine->graph = graph;
  engine->weights = weights;
  return &engine->base;
}

static bool run(Engine *base, const EvalInputs *inputs, Tensor *outputs) {
  ReferenceEngine *engine = (ReferenceEngine *)base;
  Session *session = base->session;
  return graph_eval(session->arena, &session->diag, engine->graph, weight_source_get, engine->weights, inputs, outputs);
}

static void destroy(Engine *engine) { (void)engine; }

const EngineKind engine_reference = {"reference", create, run, destroy};

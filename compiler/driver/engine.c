#include "driver/engine.h"

Engine *engine_create_whole(const EngineKind *kind, Session *session, Graph *graph, WeightSource *weights) {
  Engine *engine = kind->create(session, graph, weights);
  if (!engine) return NULL;
  engine->kind = kind;
  engine->session = session;
  return engine;
}

Engine *engine_create_kind(const EngineKind *kind, Session *session, Graph *graph, WeightSource *weights) {
  if (kind != &engine_reference && graph->ragged_batch >= 0) kind = &engine_ragged;
  return engine_create_whole(kind, session, graph, weights);
}

Engine *engine_create(Session *session, Graph *graph, WeightSource *weights) {
  if (session->library) return engine_create_kind(&engine_library, session, graph, weights);
  bool is_native = option_is(&session->options, OPTION_ENGINE, "native", "native");
  return engine_create_kind(is_native ? &engine_native : &engine_reference, session, graph, weights);
}

bool engine_run(Engine *engine, const EvalInputs *inputs, Tensor *outputs) {
  return engine->kind->run(engine, inputs, outputs);
}

void engine_destroy(Engine *engine) {
  if (engine) engine->kind->destroy(engine);
}

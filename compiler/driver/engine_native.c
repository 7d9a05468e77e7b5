/* Compiled code as an engine: code in this process, packed weights, one context of the runtime. */
#include "driver/engine_compiled.h"
#include "driver/host.h"
#include "driver/passes_options.h"

typedef struct NativeEngine {
  Engine base;
  Compiled compiled;
} NativeEngine;

static void destroy(Engine *base) {
  NativeEngine *engine = (NativeEngine *)base;
  tfm_context_destroy(base->context);
  compiled_free(&engine->compiled);
}

static bool make_context(NativeEngine *engine, Session *session) {
  tfm_error error;
  tfm_context_options options = compiled_options(session);
  const Compiled *compiled = &engine->compiled;
  engine->base.program = compiled->forward;
  if (tfm_context_create(compiled->forward, compiled->packed, &options, &engine->base.context, &error) == TFM_OK) return true;
  compiled_report(session, &error);
  return false;
}

static Engine *create(Session *session, Graph *graph, WeightSource *weights) {
  CompileRequest request = compile_request(session, weights);
  request.target = host_choose_target(session, true);
  if (!request.target) return NULL;
  request.cache = cache_open(session->arena, cache_default_folder(session->arena), CACHE_MOST_BYTES);
  const Derivation *derived = session->derived ? session->derived : derive_for_report(session, graph);
  NativeEngine *engine = ARENA_NEW(session->arena, NativeEngine);
  if (!compile_forward(&request, graph, derived, &engine->compiled)) return NULL;
  weight_source_release(weights);
  if (make_context(engine, session)) return &engine->base;
  destroy(&engine->base);
  return NULL;
}

const EngineKind engine_native = {"native", create, compiled_run, destroy};

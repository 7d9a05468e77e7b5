/* Compiled code as an engine: passes, plan, kernels in this process, packed weights, one context of the runtime. */
#include <stdlib.h>

#include "driver/engine_compiled.h"
#include "driver/host.h"
#include "driver/packing.h"
#include "driver/passes_options.h"
#include "jit/jit.h"

typedef struct NativeEngine {
  Engine base;
  Plan *plan;
  Jit *jit;
  char *packed;
} NativeEngine;

static void destroy(Engine *base) {
  NativeEngine *engine = (NativeEngine *)base;
  tfm_context_destroy(base->context);
  free(engine->packed);
  jit_destroy(engine->jit);
}

// ---- making it ----

static bool pack(NativeEngine *engine, Session *session, WeightSource *weights) {
  engine->packed = pack_in_memory(session, &engine->plan, 1, weights);
  weight_source_release(weights);
  return engine->packed != NULL;
}

static bool make_context(NativeEngine *engine, Session *session) {
  tfm_error error;
  tfm_context_options options = compiled_options(session);
  engine->base.program = jit_program(engine->jit);
  if (tfm_context_create(engine->base.program, engine->packed, &options, &engine->base.context, &error) == TFM_OK) return true;
  compiled_report(session, &error);
  return false;
}

static Engine *create(Session *session, Graph *graph, WeightSource *weights) {
  const TargetInfo *target = host_choose_target(session, true);
  if (!target || !run_passes(session, graph)) return NULL;
  NativeEngine *engine = ARENA_NEW(session->arena, NativeEngine);
  engine->plan = plan_graph(session->arena, &session->diag, graph, target);
  if (!engine->plan) return NULL;
  const CodeCache *cache = cache_open(session->arena, cache_default_folder(session->arena), CACHE_MOST_BYTES);
  engine->jit = jit_create_cached(session->arena, &session->diag, engine->plan, cache, NULL);
  if (engine->jit && pack(engine, session, weights) && make_context(engine, session)) return &engine->base;
  destroy(&engine->base);
  return NULL;
}

const EngineKind engine_native = {"native", create, compiled_run, destroy};

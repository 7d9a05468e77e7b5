/* Compiled code as an engine: passes, plan, kernels in this process, packed weights, one context of the runtime. */
#include <stdlib.h>
#include <string.h>

#include "driver/engine.h"
#include "driver/host.h"
#include "driver/passes_options.h"
#include "jit/jit.h"
#include "plan/plan.h"
#include "tfm/tfm.h"
#include "weights/pack.h"

typedef struct NativeEngine {
  Engine base;
  Plan *plan;
  Jit *jit;
  char *packed;
  tfm_context *context;
} NativeEngine;

static DiagCode code_of(const tfm_error *error) {
  static const DiagCode of_status[] = {[TFM_E_INPUT] = DIAG_RUN_CHECK, [TFM_E_USAGE] = DIAG_RUN_CHECK, [TFM_E_ENV] = DIAG_TOOL,
                                       [TFM_E_NOMEM] = DIAG_MEMORY};
  static const DiagCode of_reason[] = {[TFM_REASON_TYPE] = DIAG_INPUT_TYPE,
                                       [TFM_REASON_SHAPE] = DIAG_INPUT_SHAPE,
                                       [TFM_REASON_VALUE] = DIAG_INPUT_VALUE,
                                       [TFM_REASON_CHECK] = DIAG_RUN_CHECK,
                                       [TFM_REASON_ARITHMETIC] = DIAG_RUN_ARITHMETIC};
  if (error->reason != TFM_REASON_OTHER) return of_reason[error->reason];
  return error->status <= TFM_E_NOMEM ? of_status[error->status] : DIAG_TOOL;
}

static void report(Session *session, const tfm_error *error) {
  diag_error_at(&session->diag, error->place ? error->place : "run", code_of(error), "%s", error->message);
}

static void destroy(Engine *base) {
  NativeEngine *engine = (NativeEngine *)base;
  tfm_context_destroy(engine->context);
  free(engine->packed);
  jit_destroy(engine->jit);
}

// ---- making it ----

static bool pack(NativeEngine *engine, Session *session, WeightSource *weights) {
  size_t bytes = (engine->plan->program.weights_bytes + 63) / 64 * 64;
  engine->packed = aligned_alloc(64, bytes ? bytes : 64);
  if (!engine->packed) {
    diag_error_at(&session->diag, NULL, DIAG_MEMORY, "not enough memory for %zu bytes of weights", bytes);
    return false;
  }
  memset(engine->packed, 0, bytes ? bytes : 64);
  if (!pack_weights(session->arena, &session->diag, engine->plan, weight_source_get, weights, engine->packed)) return false;
  weight_source_release(weights);
  return true;
}

static bool make_context(NativeEngine *engine, Session *session) {
  tfm_error error;
  tfm_context_options options = {.struct_size = sizeof options,
                                 .threads = (int32_t)option_count(&session->options, OPTION_THREADS, 0)};
  if (tfm_context_create(jit_program(engine->jit), engine->packed, &options, &engine->context, &error) == TFM_OK) return true;
  report(session, &error);
  return false;
}

static Engine *create(Session *session, Graph *graph, WeightSource *weights) {
  const TargetInfo *target = host_choose_target(session, true);
  if (!target || !run_passes(session, graph)) return NULL;
  NativeEngine *engine = ARENA_NEW(session->arena, NativeEngine);
  engine->plan = plan_graph(session->arena, &session->diag, graph, target);
  if (!engine->plan) return NULL;
  engine->jit = jit_create(session->arena, &session->diag, engine->plan, NULL);
  if (engine->jit && pack(engine, session, weights) && make_context(engine, session)) return &engine->base;
  destroy(&engine->base);
  return NULL;
}

// ---- running it ----

/* The inputs in the order of the program; one that was left out has no data. */
static tfm_value *order_inputs(Arena *arena, const tfm_program *program, const EvalInputs *inputs) {
  tfm_value *values = ARENA_ARRAY(arena, tfm_value, program->n_inputs);
  for (uint32_t i = 0; i < program->n_inputs; i++)
    for (uint32_t k = 0; k < inputs->n; k++)
      if (strcmp(program->inputs[i].name, inputs->names[k]) == 0)
        values[i] = (tfm_value){inputs->tensors[k].data, (int32_t)inputs->tensors[k].dtype, (int32_t)inputs->tensors[k].rank,
                                inputs->tensors[k].dims};
  return values;
}

static void make_outputs(const NativeEngine *engine, const tfm_program *program, Tensor *outputs, tfm_value *values) {
  for (uint32_t i = 0; i < program->n_outputs; i++) {
    int32_t rank;
    const int64_t *dims = tfm_context_output_dims(engine->context, i, &rank);
    outputs[i] = *tensor_new(engine->base.session->arena, (DType)program->outputs[i].dtype, (uint32_t)rank, dims);
    values[i] = (tfm_value){outputs[i].data, (int32_t)outputs[i].dtype, rank, outputs[i].dims};
  }
}

static bool run(Engine *base, const EvalInputs *inputs, Tensor *outputs) {
  NativeEngine *engine = (NativeEngine *)base;
  Arena *arena = base->session->arena;
  const tfm_program *program = jit_program(engine->jit);
  tfm_error error;
  const tfm_value *in = order_inputs(arena, program, inputs);
  tfm_value *out = ARENA_ARRAY(arena, tfm_value, program->n_outputs);
  tfm_status status = tfm_context_bind(engine->context, in, &error);
  if (status == TFM_OK) {
    make_outputs(engine, program, outputs, out);
    status = tfm_context_run(engine->context, in, out, &error);
  }
  if (status != TFM_OK) report(base->session, &error);
  return status == TFM_OK;
}

const EngineKind engine_native = {"native", create, run, destroy};

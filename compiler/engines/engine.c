/* The engines of graphs: native, reference, and the one that takes ragged batches apart. The engine of libraries is
 * in library_engine.c.
 *
 * In: settings, a graph, weights, then inputs by name. Out: the outputs of a run. Errors of the runtime become
 * messages here, with the code that the same mistake has everywhere else. */
#include "engines/engine.h"

#include <string.h>

#include "graph/graph.h"
#include "tfm/abi/half.h"

// ---- compiled code: errors, inputs, a run ----

/* The runtime does not know diagnostics: it gives a status for C programs, and a reason where the status alone would
 * not tell, for example, a wrong shape from a wrong type. */
static DiagCode code_of(const tfm_error *error) {
  static const DiagCode of_status[] = {[TFM_E_INPUT] = DIAG_RUN_CHECK,
                                       [TFM_E_USAGE] = DIAG_RUN_CHECK,
                                       [TFM_E_ENV] = DIAG_TOOL,
                                       [TFM_E_NOMEM] = DIAG_MEMORY};
  static const DiagCode of_reason[] = {[TFM_REASON_TYPE] = DIAG_INPUT_TYPE,
                                       [TFM_REASON_SHAPE] = DIAG_INPUT_SHAPE,
                                       [TFM_REASON_VALUE] = DIAG_INPUT_VALUE,
                                       [TFM_REASON_CHECK] = DIAG_RUN_CHECK,
                                       [TFM_REASON_ARITHMETIC] = DIAG_RUN_ARITHMETIC};
  if (error->reason != TFM_REASON_OTHER) return of_reason[error->reason];
  return error->status <= TFM_E_NOMEM ? of_status[error->status] : DIAG_TOOL;
}

void report_runtime_error(Diag *diag, const tfm_error *error) {
  diag_error_at(diag, error->place ? error->place : "run", code_of(error), "%s", error->message);
}

tfm_context_options context_options(const EngineSettings *settings) {
  return (tfm_context_options){.struct_size = sizeof(tfm_context_options), .threads = settings->threads};
}

/* The numbers of a tensor in 16 bits, as a program reads them that was made for them. */
static void *in_form(Arena *arena, const Tensor *tensor, tfm_form form) {
  const int64_t n = tensor_elements(tensor);
  const float *from = tensor->data;
  uint16_t *to = ARENA_ARRAY(arena, uint16_t, (size_t)n + 1);
  for (int64_t i = 0; i < n; i++) to[i] = form == TFM_FORM_BF16 ? f32_to_bf16(from[i]) : f32_to_f16(from[i]);
  return to;
}

static tfm_value value_of(Arena *arena, const Tensor *tensor, uint8_t form) {
  void *data = form == TFM_FORM_F32 ? tensor->data : in_form(arena, tensor, (tfm_form)form);
  return (tfm_value){data, (int32_t)tensor->dtype, (int32_t)tensor->rank, tensor->dims};
}

/* Inputs in the order of the program. An input that nothing needs may be left out; its value has no data, and the
 * runtime refuses it if a step reads it. */
static tfm_value *order_inputs(Arena *arena, const Engine *base, const EvalInputs *inputs) {
  const tfm_program *program = base->program;
  tfm_value *values = ARENA_ARRAY(arena, tfm_value, program->n_inputs);
  for (uint32_t i = 0; i < program->n_inputs; i++)
    for (uint32_t k = 0; k < inputs->n; k++)
      if (strcmp(program->inputs[i].name, inputs->names[k]) == 0)
        values[i] = value_of(arena, &inputs->tensors[k], base->forms ? base->forms[i] : TFM_FORM_F32);
  return values;
}

/* Whether an earlier run left a tensor of this type and shape. The pointer must not be NULL: the first run has none. */
static bool fits(const Tensor *tensor, DType dtype, int32_t rank, const int64_t *dims) {
  return tensor->data && tensor->dtype == dtype && tensor->rank == (uint32_t)rank &&
         memcmp(tensor->dims, dims, (size_t)rank * sizeof *dims) == 0;
}

/* While runs are timed, outputs are reused: allocating and touching fresh memory would cost as much as a small
 * model. */
static void make_outputs(const Engine *base, Arena *arena, Tensor *outputs, tfm_value *values) {
  const tfm_program *program = base->program;
  for (uint32_t i = 0; i < program->n_outputs; i++) {
    int32_t rank;
    const int64_t *dims = tfm_context_output_dims(base->context, i, &rank);
    DType dtype = (DType)program->outputs[i].dtype;
    if (!base->reuses_outputs || !fits(&outputs[i], dtype, rank, dims))
      outputs[i] = *tensor_new_named(arena, "output", program->outputs[i].name, dtype, (uint32_t)rank, dims);
    values[i] = (tfm_value){outputs[i].data, (int32_t)outputs[i].dtype, rank, outputs[i].dims};
  }
}

/* Binding checks shapes, ids and the conditions of the model, so the dims of the outputs are known and nothing is
 * computed for inputs that will be refused. */
bool compiled_run(Engine *base, Arena *arena, const EvalInputs *inputs, Tensor *outputs) {
  const tfm_program *program = base->program;
  tfm_error error;
  const tfm_value *in = order_inputs(arena, base, inputs);
  tfm_value *out = ARENA_ARRAY(arena, tfm_value, program->n_outputs);
  tfm_status status = tfm_context_bind(base->context, in, &error);
  if (status == TFM_OK) {
    make_outputs(base, arena, outputs, out);
    status = tfm_context_run(base->context, in, out, &error);
  }
  if (status != TFM_OK) report_runtime_error(base->settings->compile.diag, &error);
  return status == TFM_OK;
}

bool engine_request(const EngineSettings *settings, WeightSource *weights, CompileRequest *request) {
  Arena *arena = settings->compile.arena;
  *request = settings->compile;
  request->target = compile_target(request->diag, settings->march, true);
  request->weights = weight_source_reader(weights);
  if (request->target) request->cache = cache_of_user(arena);
  return request->target != NULL;
}

// ---- native: code that is made now, in this process ----

typedef struct NativeEngine {
  Engine base;
  Compiled compiled;
} NativeEngine;

static void native_destroy(Engine *base) {
  NativeEngine *engine = (NativeEngine *)base;
  tfm_context_destroy(base->context);
  compiled_free(&engine->compiled);
}

static bool make_context(NativeEngine *engine, const EngineSettings *settings) {
  tfm_error error;
  tfm_context_options options = context_options(settings);
  const Compiled *compiled = &engine->compiled;
  engine->base.program = compiled->forward;
  if (tfm_context_create(compiled->forward, compiled->packed, &options, &engine->base.context, &error) == TFM_OK)
    return true;
  report_runtime_error(settings->compile.diag, &error);
  return false;
}

static const uint8_t *forms_of(Arena *arena, const Graph *graph) {
  bool is_f32 = true;
  uint8_t *forms = ARENA_ARRAY(arena, uint8_t, graph->inputs.n + 1);
  for (size_t i = 0; i < graph->inputs.n; i++) {
    forms[i] = (uint8_t)node_form(graph->inputs.items[i]);
    is_f32 &= forms[i] == TFM_FORM_F32;
  }
  return is_f32 ? NULL : forms;
}

static Engine *native_create(const EngineSettings *settings, Graph *graph, WeightSource *weights) {
  CompileRequest request;
  if (!engine_request(settings, weights, &request)) return NULL;
  NativeEngine *engine = ARENA_NEW(request.arena, NativeEngine);
  if (!compile_forward(&request, graph, settings->derived, &engine->compiled)) return NULL;
  engine->base.forms = forms_of(request.arena, graph); /* passes may have taken inputs away */
  if (make_context(engine, settings)) return &engine->base;
  native_destroy(&engine->base);
  return NULL;
}

const EngineKind engine_native = {"native", native_create, compiled_run, native_destroy};

// ---- reference: the interpreter, without passes, without code ----

typedef struct ReferenceEngine {
  Engine base;
  Graph *graph;
  WeightSource *weights;
} ReferenceEngine;

/* Nothing is prepared: the interpreter evaluates the graph as it was written and reads each weight when it meets it. */
static Engine *reference_create(const EngineSettings *settings, Graph *graph, WeightSource *weights) {
  ReferenceEngine *engine = ARENA_NEW(settings->compile.arena, ReferenceEngine);
  engine->graph = graph;
  engine->weights = weights;
  return &engine->base;
}

static bool reference_run(Engine *base, Arena *arena, const EvalInputs *inputs, Tensor *outputs) {
  ReferenceEngine *engine = (ReferenceEngine *)base;
  const EvalCall call = {engine->graph, weight_source_get, engine->weights, .inputs = inputs};
  return graph_eval(arena, base->settings->compile.diag, &call, outputs);
}

static void reference_destroy(Engine *engine) { (void)engine; }

const EngineKind engine_reference = {"reference", reference_create, reference_run, reference_destroy};

// ---- ragged: compiled code that runs each item as a batch of one ----

/* The interpreter takes the batch apart, checks all items before the first is computed, and puts the results
 * together. */
typedef struct RaggedEngine {
  Engine base;
  Graph *whole;  /* what is checked */
  Engine *items; /* runs the same graph, in which every size is an ordinary one */
  Arena *arena;  /* of the run */
  const char **names;
} RaggedEngine;

/* The program and the context that `base` shows are those of the inner engine, which frees them. */
static void ragged_destroy(Engine *base) { engine_destroy(((RaggedEngine *)base)->items); }

/* One item, as a batch of one. `inputs` are its parts in the order of the graph; every size is an ordinary one
 * there. */
static bool run_item(void *context, const Tensor *const *inputs, Tensor *outputs) {
  RaggedEngine *engine = context;
  uint32_t n = (uint32_t)engine->whole->inputs.n;
  Tensor *given = ARENA_ARRAY(engine->arena, Tensor, n);
  for (uint32_t i = 0; i < n; i++) given[i] = *inputs[i];
  const EvalInputs item = {engine->names, given, n};
  return engine_run(engine->items, engine->arena, &item, outputs);
}

/* The interpreter does what is the same for every engine: it cuts the batch by the lengths, checks all items before
 * the first is computed, and puts the results together. */
static bool ragged_run(Engine *base, Arena *arena, const EvalInputs *inputs, Tensor *outputs) {
  RaggedEngine *engine = (RaggedEngine *)base;
  const EvalOptions by_items = {.item = run_item, .item_context = engine};
  const EvalCall call = {.graph = engine->whole, .inputs = inputs, .options = by_items};
  engine->arena = arena;
  return graph_eval(arena, base->settings->compile.diag, &call, outputs);
}

static const EngineKind engine_ragged;

/* An engine reads its settings in every run, for the diag among others; that is why they must outlive it. */
static Engine *create_whole(const EngineKind *kind, const EngineSettings *settings, Graph *graph,
                            WeightSource *weights) {
  Engine *engine = kind->create(settings, graph, weights);
  if (!engine) return NULL;
  engine->kind = kind;
  engine->settings = settings;
  return engine;
}

/* The whole graph is copied before the engine of the items takes and changes the original. */
static Engine *ragged_create(const EngineSettings *settings, Graph *graph, WeightSource *weights) {
  Arena *arena = settings->compile.arena;
  RaggedEngine *engine = ARENA_NEW(arena, RaggedEngine);
  engine->whole = graph_clone(arena, graph);
  engine->names = ARENA_ARRAY(arena, const char *, graph->inputs.n);
  for (size_t i = 0; i < graph->inputs.n; i++) engine->names[i] = engine->whole->inputs.items[i]->attr.name;
  engine->items = create_whole(settings->library ? &engine_library : &engine_native, settings, graph, weights);
  if (!engine->items) return NULL;
  engine->base.program = engine->items->program;
  engine->base.context = engine->items->context;
  return &engine->base;
}

static const EngineKind engine_ragged = {"native", ragged_create, ragged_run, ragged_destroy};

// ---- any of them ----

/* The interpreter knows ragged sizes itself; compiled code does not and gets the engine that takes batches apart
 * around it. */
Engine *engine_create(const EngineKind *kind, const EngineSettings *settings, Graph *graph, WeightSource *weights) {
  if (kind != &engine_reference && graph->ragged_batch >= 0) kind = &engine_ragged;
  return create_whole(kind, settings, graph, weights);
}

bool engine_run(Engine *engine, Arena *arena, const EvalInputs *inputs, Tensor *outputs) {
  return engine->kind->run(engine, arena, inputs, outputs);
}

void engine_destroy(Engine *engine) {
  if (engine) engine->kind->destroy(engine);
}

/* tfmc verify: what is computed against known outputs, or against the reference interpreter. */
#include <string.h>

#include "driver/commands/commands.h"
#include "driver/compare.h"
#include "driver/first_difference.h"
#include "driver/inputs.h"
#include "weights/safetensors.h"

typedef struct Expected {
  const char *name;
  Tensor tensor;
} Expected;

typedef struct Verification {
  Session *session;
  Graph *graph; /* as elaborated; engines get copies */
  WeightSource *weights;
  const EvalInputs *inputs;
} Verification;

static Tensor *compute(const Verification *v, const EngineKind *kind) {
  Session *session = v->session;
  Graph *graph = graph_clone(session->arena, v->graph);
  Tensor *outputs = ARENA_ARRAY(session->arena, Tensor, graph->outputs.n);
  Engine *engine = kind ? engine_create_kind(kind, session, graph, v->weights) : engine_create(session, graph, v->weights);
  bool done = engine && engine_run(engine, v->inputs, outputs);
  for (size_t i = 0; done && i < v->graph->outputs.n; i++) /* the engine's memory goes with it */
    outputs[i].data = arena_copy(session->arena, outputs[i].data,
                                 (size_t)tensor_elements(&outputs[i]) * dtype_bytes[outputs[i].dtype]);
  engine_destroy(engine);
  return done ? outputs : NULL;
}

/* True if they agree. */
static bool compare(const Verification *v, const char *name, const Tensor *got, const Tensor *wanted) {
  Session *session = v->session;
  Difference difference;
  StrBuf text = strbuf_new(session->arena);
  bool agree = tensors_agree(got, wanted, tolerance_of(&session->options), &difference);
  if (agree) {
    strbuf_printf(&text, "%s: %lld elements agree; the largest difference is %.3g\n", name,
                  (long long)tensor_elements(got), difference.worst);
    session_print(&text);
  } else {
    difference_print(&text, &difference, got, wanted);
    diag_error_at(&session->diag, name, DIAG_DIFFERENCE, "%s", text.text);
  }
  return agree;
}

// ---- against a file ----

static bool read_expected(Session *session, const SafeTensors *file, const StTensor *tensor, Tensor *wanted) {
  DType dtype = DTYPE_F32;
  while (dtype < N_DTYPES && !can_convert(tensor->dtype, dtype)) dtype++;
  if (dtype == N_DTYPES || tensor->rank > MAX_RANK) {
    diag_error_at(&session->diag, file->file.path, DIAG_INPUT_TYPE, "tensor \"%s\": no output has type %s and %u axes",
                  tensor->name, tensor->dtype_name, tensor->rank);
    return false;
  }
  *wanted = *tensor_new(session->arena, dtype, tensor->rank, tensor->dims);
  return safetensors_read(file, &session->diag, tensor, dtype, wanted->data);
}

static const Tensor *find_output(const Graph *graph, const Tensor *outputs, const char *name) {
  for (size_t i = 0; i < graph->outputs.n; i++)
    if (strcmp(graph->outputs.items[i].name, name) == 0) return &outputs[i];
  return NULL;
}

static void verify_file(const Verification *v, const SafeTensors *file) {
  Session *session = v->session;
  const Tensor *outputs = compute(v, NULL);
  for (size_t i = 0; outputs && i < file->tensors.n; i++) {
    const StTensor *tensor = file->tensors.items[i];
    const Tensor *got = find_output(v->graph, outputs, tensor->name);
    Tensor wanted;
    if (!got) diag_error_at(&session->diag, file->file.path, DIAG_INPUT_UNKNOWN, "the model has no output \"%s\"", tensor->name);
    else if (read_expected(session, file, tensor, &wanted)) compare(v, tensor->name, got, &wanted);
  }
}

// ---- against the reference interpreter ----

static void verify_reference(const Verification *v) {
  if (v->weights->is_packed) {
    option_error(&v->session->diag, OPTION_WEIGHTS, "the reference interpreter wants the file that the library's weights were made from");
    return;
  }
  const Tensor *wanted = compute(v, &engine_reference);
  const Tensor *got = wanted ? compute(v, NULL) : NULL;
  bool agree = true;
  for (size_t i = 0; got && i < v->graph->outputs.n; i++)
    agree = compare(v, v->graph->outputs.items[i].name, &got[i], &wanted[i]) && agree;
  if (!agree && !v->session->library) report_first_difference(v->session, v->graph, v->weights, v->inputs);
}

void command_verify(Session *session) {
  Graph *graph = model_load(session);
  WeightSource *weights = graph ? weight_source_open(session, graph) : NULL;
  const EvalInputs *inputs = weights ? inputs_load(session, graph) : NULL;
  const char *golden = option_text(&session->options, OPTION_GOLDEN, NULL);
  if (inputs) {
    Verification v = {session, graph, weights, inputs};
    SafeTensors *file = golden ? safetensors_open(session->arena, &session->diag, golden) : NULL;
    if (file) verify_file(&v, file);
    else if (!golden) verify_reference(&v);
    safetensors_close(file);
  }
  weight_source_close(weights);
}

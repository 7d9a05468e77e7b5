/* tfmc run and tfmc verify: what a model computes, and whether it is what it should be.
 *
 * In: a model, weights, inputs; for verify a file with the outputs that are expected, or nothing, then the reference
 * interpreter gives them. Out: the outputs, as files or as a summary; or for each output whether it agrees within the
 * tolerance, and if not, how many elements differ and where the first one is, and against the interpreter the first
 * operation that differs. Two numbers are equal if |got - wanted| <= atol + rtol |wanted|; NaN equals NaN, an infinity
 * only itself, and i32 and bool are compared exactly. */
#include <math.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/inputs.h"
#include "cli/model.h"
#include "cli/outputs.h"
#include "engines/engine.h"
#include "weights/safetensors.h"

// ---- tfmc run ----

/* The number of outputs is read before the graph becomes the engine's. */
static void run(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  Tensor *outputs = ARENA_ARRAY(session->arena, Tensor, graph->outputs.n);
  Engine *engine = session_engine(session, graph, weights);
  if (engine && engine_run(engine, session->arena, inputs, outputs)) outputs_write(session, graph, outputs);
  engine_destroy(engine);
}

/* Files and names of outputs are checked first, since compiling a large model takes a while. */
void command_run(Session *session) {
  if (!outputs_check_files(session)) return; /* known before anything is compiled */
  Graph *graph = model_load(session);
  if (!graph || !outputs_check_names(session, graph)) return;
  WeightSource *weights = session_weights(session, graph);
  const EvalInputs *inputs = weights ? inputs_load(session, graph) : NULL;
  if (inputs) run(session, graph, weights, inputs);
  weight_source_close(weights);
}

// ---- whether two tensors agree ----

typedef struct Tolerance {
  double absolute, relative;
} Tolerance;

typedef struct Difference {
  bool shape;        /* type or shape differ; nothing else is set */
  int64_t count, first; /* elements that differ */
  double worst;      /* the largest |got - wanted| among all elements that are finite in both */
} Difference;

static Tolerance tolerance_of(const Options *options) {
  return (Tolerance){option_number(options, OPTION_ATOL, 1e-5), option_number(options, OPTION_RTOL, 1e-5)};
}

/* Every element fits a double exactly, so the comparison itself never rounds. */
static double element(const Tensor *tensor, int64_t i) {
  if (tensor->dtype == DTYPE_F32) return (double)((const float *)tensor->data)[i];
  return tensor->dtype == DTYPE_I32 ? ((const int32_t *)tensor->data)[i] : ((const uint8_t *)tensor->data)[i];
}

/* |got - wanted| <= atol + rtol |wanted|, as numpy.allclose defines it; the expected value is what the tolerance is
 * relative to. */
static bool elements_agree(double got, double wanted, Tolerance tolerance) {
  if (got == wanted || (isnan(got) && isnan(wanted))) return true;
  return isfinite(wanted) && fabs(got - wanted) <= tolerance.absolute + tolerance.relative * fabs(wanted);
}

/* Returns whether they agree and sets `difference` in both cases. Integers and booleans are compared exactly, whatever
 * the tolerance. */
static bool tensors_agree(const Tensor *got, const Tensor *wanted, Tolerance tolerance, Difference *difference) {
  *difference = (Difference){0};
  difference->shape = got->dtype != wanted->dtype || got->rank != wanted->rank ||
                      memcmp(got->dims, wanted->dims, got->rank * sizeof *got->dims) != 0;
  if (difference->shape) return false;
  if (got->dtype != DTYPE_F32) tolerance = (Tolerance){0, 0};
  int64_t n = tensor_elements(got);
  for (int64_t i = 0; i < n; i++) {
    double a = element(got, i), b = element(wanted, i);
    if (isfinite(a) && isfinite(b)) difference->worst = fmax(difference->worst, fabs(a - b));
    if (elements_agree(a, b, tolerance)) continue;
    if (!difference->count++) difference->first = i;
  }
  return difference->count == 0;
}

static void print_type(StrBuf *out, const Tensor *tensor) {
  strbuf_add(out, dtype_names[tensor->dtype]);
  print_dims(out, tensor->dims, tensor->rank);
}

/* "12 of 40 elements differ, first at [0, 3]: 1.5, expected 1.25" */
static void difference_print(StrBuf *out, const Difference *difference, const Tensor *got, const Tensor *wanted) {
  if (difference->shape) {
    print_type(out, got);
    strbuf_add(out, ", expected ");
    print_type(out, wanted);
    return;
  }
  strbuf_printf(out, "%lld of %lld elements differ, first at ", (long long)difference->count,
                (long long)tensor_elements(got));
  tensor_print_place(out, got, difference->first);
  strbuf_add(out, ": ");
  tensor_print_element(out, got, difference->first);
  strbuf_add(out, ", expected ");
  tensor_print_element(out, wanted, difference->first);
  strbuf_printf(out, "; the largest difference is %.3g", difference->worst);
}

// ---- what is computed ----

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

/* Every engine gets a copy of the graph, since it rewrites what it is given; its outputs are copied before it goes.
 * `kind` NULL: the engine that the command line chose. NULL after an error. */
static Tensor *compute(const Verification *v, const EngineKind *kind) {
  Session *session = v->session;
  Graph *graph = graph_clone(session->arena, v->graph);
  Tensor *outputs = ARENA_ARRAY(session->arena, Tensor, graph->outputs.n);
  Engine *engine = kind ? session_engine_of(session, kind, graph, v->weights)
                        : session_engine(session, graph, v->weights);
  bool done = engine && engine_run(engine, session->arena, v->inputs, outputs);
  for (size_t i = 0; done && i < v->graph->outputs.n; i++) /* the engine's memory goes with it */
    outputs[i].data = arena_copy(session->arena, outputs[i].data,
                                 (size_t)tensor_elements(&outputs[i]) * dtype_bytes[outputs[i].dtype]);
  engine_destroy(engine);
  return done ? outputs : NULL;
}

/* Prints or reports how an output compares. True if they agree. */
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

/* A file may store an output in another type that converts exactly (I64 for ids, say); the first type of an output
 * that fits is taken. */
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

/* Only what the file holds is compared: a golden file need not have every output. */
static void verify_file(const Verification *v, const SafeTensors *file) {
  Session *session = v->session;
  const Tensor *outputs = compute(v, NULL);
  for (size_t i = 0; outputs && i < file->tensors.n; i++) {
    const StTensor *tensor = file->tensors.items[i];
    const Tensor *got = find_output(v->graph, outputs, tensor->name);
    Tensor wanted;
    if (!got)
      diag_error_at(&session->diag, file->file.path, DIAG_INPUT_UNKNOWN, "the model has no output \"%s\"",
                    tensor->name);
    else if (read_expected(session, file, tensor, &wanted)) compare(v, tensor->name, got, &wanted);
  }
}

// ---- the first operation that differs ----

typedef struct Search {
  Session *session;
  Graph *graph;
  WeightSource *weights;
  const EvalInputs *inputs;
  VEC(uint32_t) candidates; /* ids of operations that compute something */
} Search;

/* Computes the value of node `id` alone, as the only output of a copy of the graph. False if it cannot be computed. */
static bool value_of(const Search *s, const EngineKind *kind, uint32_t id, Tensor *value) {
  Diag own = diag_new(s->session->arena); /* an operation that cannot be computed alone is no error of the command */
  EngineSettings *settings = engine_settings(s->session);
  settings->compile.diag = &own;
  settings->compile.report = NULL; /* --report and --require-fusion are about the whole model */
  settings->print = NULL;
  Graph *graph = graph_clone(s->session->arena, s->graph);
  Node *node = graph->first;
  while (node->id != id) node = node->next;
  graph->outputs.n = 0;
  vec_push(graph->arena, &graph->outputs, (GraphOutput){.name = "value", .node = node});
  Engine *engine = engine_create(kind, settings, graph, s->weights);
  bool done = engine && engine_run(engine, s->session->arena, s->inputs, value);
  if (done)
    value->data = arena_copy(s->session->arena, value->data,
                             (size_t)tensor_elements(value) * dtype_bytes[value->dtype]);
  engine_destroy(engine);
  return done;
}

static bool differs(const Search *s, uint32_t id, Difference *difference, Tensor *got, Tensor *wanted) {
  return value_of(s, &engine_reference, id, wanted) && value_of(s, &engine_native, id, got) &&
         !tensors_agree(got, wanted, tolerance_of(&s->session->options), difference);
}

/* Everything that is computed from inputs; what depends on weights alone is the same for all runs and is reached
 * through its users. */
static void list_candidates(Search *s) {
  graph_renumber(s->graph);
  for (const Node *node = s->graph->first; node; node = node->next)
    if (op_table[node->op].category != CATEGORY_SOURCE && !node_is_static(node))
      vec_push(s->session->arena, &s->candidates, node->id);
}

/* Adds a note to the newest message: the first operation of the graph, in the order of computation, whose value
 * differs. Each operation that is tried is compiled as an output of its own, fused with what stands before it. The
 * search halves, which is right as long as a difference does not vanish again; if it does, the operation that is named
 * still differs, but need not be the first. */
static void report_first_difference(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  Search s = {.session = session, .graph = graph, .weights = weights, .inputs = inputs};
  list_candidates(&s);
  Difference difference, found = {0};
  Tensor got, wanted, found_got, found_wanted;
  size_t low = 0, high = s.candidates.n; /* those before `low` agree, `high` differs */
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (differs(&s, s.candidates.items[middle], &difference, &got, &wanted)) {
      high = middle;
      found = difference;
      found_got = got;
      found_wanted = wanted;
    } else {
      low = middle + 1;
    }
  }
  if (!found.count && !found.shape) return;
  const Node *node = graph->first;
  while (node->id != s.candidates.items[high]) node = node->next;
  StrBuf text = strbuf_new(session->arena);
  difference_print(&text, &found, &found_got, &found_wanted);
  diag_note(&session->diag, node->origin.span, "the first operation that differs is %s%s%s: %s",
            op_table[node->op].name, *node->origin.path ? " in " : "", node->origin.path, text.text);
}

// ---- against the reference interpreter ----

/* The reference reads tensors by name, so packed weights do not serve it. */
static void verify_reference(const Verification *v) {
  if (v->weights->is_packed) {
    option_error(&v->session->diag, OPTION_WEIGHTS,
                 "the reference interpreter needs the file that the library's weights were made from");
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
  WeightSource *weights = graph ? session_weights(session, graph) : NULL;
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

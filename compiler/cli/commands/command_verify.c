/* tfmc verify: whether a model computes what it should.
 *
 * In: a model, weights, inputs; a file with the outputs that are expected, or nothing, then the reference interpreter
 * gives them. Out: for each output whether it agrees within the tolerance (agreement.h), and if not, by how much;
 * against a file also whether rounding explains that, and against the interpreter the first operation that differs.
 * With --compare-with=f32 the model is held against itself in f32 (verify_f32.c). */
#include "cli/commands/verification.h"

#include <math.h>
#include <string.h>

#include "cli/agreement.h"
#include "cli/cli_inputs.h"
#include "cli/cli_model.h"
#include "cli/commands/commands.h"
#include "engines/engine.h"
#include "measure/roofline.h"
#include "weights/safetensors.h"

// ---- against a file ----

/* A file may store an output in another type that converts exactly (I64 for ids, say); the first type of an output
 * that fits is taken. */
static bool read_expected(Session *session, const TensorFile *file, const FileTensor *tensor, Tensor *wanted) {
  DType dtype = DTYPE_F32;
  while (dtype < N_DTYPES && !can_convert(tensor->dtype, dtype)) dtype++;
  if (dtype == N_DTYPES || tensor->rank > MAX_RANK) {
    diag_error_at(&session->diag, file->file.path, DIAG_INPUT_TYPE, "tensor \"%s\": no output has type %s and %u %s",
                  tensor->name, tensor->dtype_name, tensor->rank, tensor->rank == 1 ? "axis" : "axes");
    return false;
  }
  *wanted = *tensor_new(session->arena, dtype, tensor->rank, tensor->dims);
  return tensor_file_read(file, &session->diag, tensor, dtype, wanted->data);
}

static const Tensor *find_output(const Graph *graph, const Tensor *outputs, const char *name) {
  for (size_t i = 0; i < graph->outputs.n; i++)
    if (strcmp(graph->outputs.items[i].name, name) == 0) return &outputs[i];
  return NULL;
}

// ---- the precision of the file ----

/* What the interpreter gives, which computes each operation in double. NULL where it does not serve as a judge: it is
 * what was compared, it has no tensors by name, or it would take minutes. */
static const Tensor *reference_outputs(Verification *v) {
  enum { MOST_GFLOP = 10 }; /* some seconds */
  const bool serves = option_is(&v->session->options, OPTION_ENGINE, "native", "native") && !v->weights->is_packed &&
                      roofline_flops_written(v->graph, v->inputs) <= MOST_GFLOP * 1e9;
  if (!v->has_reference && serves) v->reference = verification_compute(v, &engine_reference);
  v->has_reference = true;
  return v->reference;
}

/* Whether `value` is rounding, not a mistake: a thousandth of an output's values is beyond what f32 loses. */
static bool is_small(const Difference *difference, double value) {
  static const double PART = 1e-3;
  return value <= PART * (difference->largest > 1 ? difference->largest : 1);
}

/* How far f32 in this engine's order, and without fusions, is from the exact values: what rounding makes of an output.
 * Another order, such as PyTorch's, is of the same size. */
static double rounding_of(const Verification *v, size_t output, const Tensor *exact, double here) {
  Session *session = v->session;
  EngineSettings *settings = engine_settings(session);
  Diag own = diag_new(session->arena);
  settings->compile.diag = &own; /* without this estimate there is one still */
  settings->compile.report = NULL;
  settings->compile.passes.level = 0;
  settings->print = NULL;
  Engine *engine = engine_create(&engine_native, settings, graph_clone(session->arena, v->graph), v->weights);
  const Tensor *unfused = verification_outputs(v, engine, v->graph->outputs.n);
  Difference difference;
  if (!unfused) return here;
  tensors_agree(&session->options, &unfused[output], exact, &difference);
  return difference.worst > here ? difference.worst : here;
}

/* The interpreter computes the model that is given, so a model that is wrong is always near it and far from the file:
 * that alone says nothing about who is wrong. An f32 file is to blame only for as much as rounding makes. */
static void explain_difference(Verification *v, size_t output, const FileTensor *tensor, const Tensor *got,
                               const Tensor *wanted, const Difference *difference) {
  static const double ORDERS = 8; /* between two orders of f32, on the same output */
  Diag *diag = &v->session->diag;
  Difference here, there;
  if (rounding_explains(difference, tensor->dtype, got, wanted)) {
    diag_note(diag, NO_SPAN, "the file's own precision explains the difference: it holds %s", tensor->dtype_name);
    return;
  }
  if (difference->shape || got->dtype != DTYPE_F32 || !is_small(difference, difference->needed)) return;
  const Tensor *exact = reference_outputs(v);
  if (!exact || !tensors_agree(&v->session->options, got, &exact[output], &here)) return;
  tensors_agree(&v->session->options, wanted, &exact[output], &there);
  const double rounding = rounding_of(v, output, &exact[output], here.worst);
  if (there.worst <= ORDERS * rounding)
    diag_note(diag, NO_SPAN,
              "rounding in f32 explains the difference: the file's values are up to %.3g from what the reference "
              "interpreter computes in double, results in f32 up to %.3g",
              there.worst, rounding);
  else
    diag_note(diag, NO_SPAN,
              "the file's values are up to %.3g from what the reference interpreter computes of this model in double, "
              "results in f32 up to %.3g: either the file is of another model (an activation, an eps, a mask), of "
              "other weights or inputs, or it was computed with less precision than f32",
              there.worst, rounding);
}

/* Only what the file holds is compared: a golden file need not have every output. */
static void verify_file(Verification *v, const TensorFile *file) {
  Session *session = v->session;
  const Tensor *outputs = verification_compute(v, NULL);
  for (size_t i = 0; outputs && i < file->tensors.n; i++) {
    const FileTensor *tensor = file->tensors.items[i];
    const Tensor *got = find_output(v->graph, outputs, tensor->name);
    Tensor wanted;
    Difference difference;
    if (!got)
      diag_error_at(&session->diag, file->file.path, DIAG_INPUT_UNKNOWN, "the model has no output \"%s\"",
                    tensor->name);
    else if (read_expected(session, file, tensor, &wanted) &&
             !verification_compare(v, tensor->name, got, &wanted, &difference))
      explain_difference(v, (size_t)(got - outputs), tensor, got, &wanted, &difference);
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
         !tensors_agree(&s->session->options, got, wanted, difference);
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
  diag_note(&session->diag, origin_place(&node->origin), "the first operation that differs is %s%s%s: %s",
            op_table[node->op].name, *node->origin.path ? " in " : "", node->origin.path, text.text);
}

// ---- against the reference interpreter ----

static bool has_whole_numbers(const Graph *graph) {
  for (const Node *node = graph->first; node; node = node->next)
    if (node->op != OP_ROUND_TO && tfm_form_has_whole_rows(node->attr.form)) return true;
  return false;
}

/* The model as it is in f32; NULL after an error. */
static const Tensor *compute_in_f32(const Verification *v) {
  Verification plain = *v;
  plain.graph = graph_clone(v->session->arena, v->graph);
  for (Node *node = plain.graph->first; node; node = node->next) {
    if (node->op != OP_ROUND_TO) node->attr.form = TFM_FORM_F32;
    else if (tfm_form_has_scales(node->attr.form)) graph_replace_uses(plain.graph, node, node->inputs.items[0]);
  }
  return verification_compute(&plain, &engine_native);
}

/* What lies near a tie is rounded to one side or the other by the last bit of f32, and each step that rounds again
 * makes more of that. So an output that products in whole numbers lead to is compared as a whole, if nobody set a
 * tolerance: it must be nearer to the expected one than rounding to whole numbers moves it. */
static bool compare_as_a_whole(const Verification *v, size_t output, const Tensor *got, const Tensor *wanted) {
  static const double LEAST = 1e-3;
  const char *name = v->graph->outputs.items[output].name;
  const Tensor *plain = compute_in_f32(v);
  if (!plain) return false;
  const double distance = tensors_distance(got, wanted), rounding = tensors_distance(&plain[output], wanted);
  StrBuf text = strbuf_new(v->session->arena);
  strbuf_printf(&text, "the relative distance is %.3g, and that of f32 %.3g", distance, rounding);
  if (distance <= fmax(LEAST, rounding)) {
    StrBuf line = strbuf_new(v->session->arena);
    strbuf_printf(&line, "%s: %lld elements agree as a whole; %s\n", name, (long long)tensor_elements(got), text.text);
    session_print(&line);
    return true;
  }
  diag_error_at(&v->session->diag, name, DIAG_DIFFERENCE, "%s", text.text);
  return false;
}

static bool compare_output(const Verification *v, size_t i, const Tensor *got, const Tensor *wanted) {
  const Options *options = &v->session->options;
  const char *name = v->graph->outputs.items[i].name;
  const bool is_whole = has_whole_numbers(v->graph) && got->dtype == DTYPE_F32 && !option_given(options, OPTION_ATOL) &&
                        !option_given(options, OPTION_RTOL);
  Difference difference;
  if (is_whole && !tensors_agree(options, got, wanted, &difference) && !difference.shape)
    return compare_as_a_whole(v, i, got, wanted);
  return verification_compare(v, name, got, wanted, &difference);
}

static void verify_reference(const Verification *v) {
  if (!verification_has_tensors(v, "the reference interpreter")) return;
  const Tensor *wanted = verification_compute(v, &engine_reference);
  const Tensor *got = wanted ? verification_compute(v, NULL) : NULL;
  bool agree = true;
  for (size_t i = 0; got && i < v->graph->outputs.n; i++) agree = compare_output(v, i, &got[i], &wanted[i]) && agree;
  const bool is_searched = !agree && !v->session->library && !has_whole_numbers(v->graph);
  if (is_searched) report_first_difference(v->session, v->graph, v->weights, v->inputs);
}

// ---- tfmc verify ----

/* False after an error. */
static bool check_options(Session *session, bool compares_with_f32) {
  const Options *options = &session->options;
  if (compares_with_f32 && option_given(options, OPTION_GOLDEN))
    option_error(&session->diag, OPTION_GOLDEN,
                 "what fewer bits change is compared with the model in f32: leave this out");
  if (!compares_with_f32 && option_given(options, OPTION_MIN_COSINE))
    option_error(&session->diag, OPTION_MIN_COSINE, "is about --compare-with=f32, which is missing");
  return !diag_has_errors(&session->diag);
}

void command_verify(Session *session) {
  const bool with_f32 =
      option_given(&session->options, OPTION_COMPARE_WITH) || option_given(&session->options, OPTION_SENSITIVITY);
  if (!check_options(session, with_f32)) return;
  Graph *graph = model_load(session);
  WeightSource *weights = graph ? session_weights(session, graph) : NULL;
  const EvalInputs *inputs = weights ? inputs_load(session, graph) : NULL;
  const char *golden = option_text(&session->options, OPTION_GOLDEN, NULL);
  if (inputs) {
    Verification v = {.session = session, .graph = graph, .weights = weights, .inputs = inputs};
    TensorFile *file = golden ? safetensors_open(session->arena, &session->diag, golden) : NULL;
    if (with_f32)
      verify_f32(&v);
    else if (file)
      verify_file(&v, file);
    else if (!golden) verify_reference(&v);
    tensor_file_close(file);
  }
  weight_source_close(weights);
}

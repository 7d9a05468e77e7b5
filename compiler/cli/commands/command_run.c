/* tfmc run and tfmc verify: what a model computes, and whether it is what it should be.
 *
 * In: a model, weights, inputs; for verify a file with the outputs that are expected, or nothing, then the reference
 * interpreter gives them. Out: the outputs, as files or as a summary; or for each output whether it agrees within the
 * tolerance (agreement.h), and if not, by how much; against a file also whether rounding explains that, and against
 * the interpreter the first operation that differs. With --compare-with=f32, how far numbers of fewer bits move
 * outputs and modules, and which of them cost most. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/agreement.h"
#include "cli/commands/commands.h"
#include "cli/cli_inputs.h"
#include "cli/cli_model.h"
#include "cli/outputs.h"
#include "compile/quantize.h"
#include "engines/engine.h"
#include "measure/roofline.h"
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

// ---- what is computed ----

typedef struct Verification {
  Session *session;
  Graph *graph; /* as elaborated; engines get copies */
  WeightSource *weights;
  const EvalInputs *inputs;
  const Tensor *reference; /* the interpreter's outputs, once they are asked for; NULL: it has none */
  bool has_reference;      /* they were asked for */
} Verification;

/* The outputs are copied before the engine goes, whose memory they are in. `engine` NULL, and NULL: an error. */
static Tensor *outputs_of(const Verification *v, Engine *engine, size_t n) {
  Session *session = v->session;
  Tensor *outputs = ARENA_ARRAY(session->arena, Tensor, n);
  bool done = engine && engine_run(engine, session->arena, v->inputs, outputs);
  for (size_t i = 0; done && i < n; i++)
    outputs[i].data = arena_copy(session->arena, outputs[i].data,
                                 (size_t)tensor_elements(&outputs[i]) * dtype_bytes[outputs[i].dtype]);
  engine_destroy(engine);
  return done ? outputs : NULL;
}

/* Every engine gets a copy of the graph, since it rewrites what it is given. `kind` NULL: the engine that the command
 * line chose. NULL after an error. */
static Tensor *compute(const Verification *v, const EngineKind *kind) {
  Session *session = v->session;
  Graph *graph = graph_clone(session->arena, v->graph);
  Engine *engine =
      kind ? session_engine_of(session, kind, graph, v->weights) : session_engine(session, graph, v->weights);
  return outputs_of(v, engine, v->graph->outputs.n);
}

static void print_agreement(Session *session, const char *name, const Tensor *got, const Difference *difference) {
  StrBuf text = strbuf_new(session->arena);
  strbuf_printf(&text, "%s: %lld elements agree; the largest difference is %.3g, the largest expected value %.6g\n",
                name, (long long)tensor_elements(got), difference->worst, difference->largest);
  session_print(&text);
  if (difference_is_unseen(&session->options, difference))
    diag_warning_at(&session->diag, name, DIAG_TOLERANCE_WIDE,
                    "the values are at most %.3g, and %.3g would be allowed: set --atol", difference->largest,
                    difference->allowed.absolute);
}

static void report_difference(Session *session, const char *name, const Tensor *got, const Tensor *wanted,
                              const Difference *difference) {
  StrBuf text = strbuf_new(session->arena), allowed = strbuf_new(session->arena);
  difference_print(&text, difference, got, wanted);
  diag_error_at(&session->diag, name, DIAG_DIFFERENCE, "%s", text.text);
  if (tolerance_print(&allowed, &session->options, difference, wanted))
    diag_note(&session->diag, NO_SPAN, "%s", allowed.text);
}

/* Prints or reports how an output compares. True if they agree. */
static bool compare(const Verification *v, const char *name, const Tensor *got, const Tensor *wanted,
                    Difference *difference) {
  bool agree = tensors_agree(&v->session->options, got, wanted, difference);
  if (agree) print_agreement(v->session, name, got, difference);
  else report_difference(v->session, name, got, wanted, difference);
  return agree;
}

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
  if (!v->has_reference && serves) v->reference = compute(v, &engine_reference);
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
  const Tensor *unfused = outputs_of(v, engine, v->graph->outputs.n);
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
  const Tensor *outputs = compute(v, NULL);
  for (size_t i = 0; outputs && i < file->tensors.n; i++) {
    const FileTensor *tensor = file->tensors.items[i];
    const Tensor *got = find_output(v->graph, outputs, tensor->name);
    Tensor wanted;
    Difference difference;
    if (!got)
      diag_error_at(&session->diag, file->file.path, DIAG_INPUT_UNKNOWN, "the model has no output \"%s\"",
                    tensor->name);
    else if (read_expected(session, file, tensor, &wanted) && !compare(v, tensor->name, got, &wanted, &difference))
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
    if (node->attr.is_int8) return true;
  return false;
}

/* The model as it is in f32; NULL after an error. */
static const Tensor *compute_in_f32(const Verification *v) {
  Verification plain = *v;
  plain.graph = graph_clone(v->session->arena, v->graph);
  for (Node *node = plain.graph->first; node; node = node->next) {
    node->attr.is_int8 = node->attr.is_int4 = false;
    if (node->op == OP_TO_INT8 || node->op == OP_TO_INT4) graph_replace_uses(plain.graph, node, node->inputs.items[0]);
  }
  return compute(&plain, &engine_native);
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
  return compare(v, name, got, wanted, &difference);
}

/* Packed weights are no tensors by name. */
static bool has_tensors(const Verification *v, const char *who) {
  if (v->weights->is_packed)
    option_error(&v->session->diag, OPTION_WEIGHTS, "%s needs the file that the library's weights were made from", who);
  return !v->weights->is_packed;
}

static void verify_reference(const Verification *v) {
  if (!has_tensors(v, "the reference interpreter")) return;
  const Tensor *wanted = compute(v, &engine_reference);
  const Tensor *got = wanted ? compute(v, NULL) : NULL;
  bool agree = true;
  for (size_t i = 0; got && i < v->graph->outputs.n; i++) agree = compare_output(v, i, &got[i], &wanted[i]) && agree;
  const bool is_searched = !agree && !v->session->library && !has_whole_numbers(v->graph);
  if (is_searched) report_first_difference(v->session, v->graph, v->weights, v->inputs);
}

// ---- against the model in f32 ----

/* The outputs of another graph. What a command reports is about its model, not about what that is compared with. */
static Tensor *compute_other(const Verification *v, const Graph *graph) {
  EngineSettings *settings = engine_settings(v->session);
  settings->compile.report = NULL;
  settings->print = NULL;
  const bool is_native = option_is(&v->session->options, OPTION_ENGINE, "native", "native");
  Graph *copy = graph_clone(v->session->arena, graph);
  Engine *engine = engine_create(is_native ? &engine_native : &engine_reference, settings, copy, v->weights);
  return outputs_of(v, engine, graph->outputs.n);
}

/* The graph without what rules did to `name`, or to everything. */
static Tensor *compute_wide(const Verification *v, const Graph *graph, const char *name) {
  Graph *wide = graph_clone(v->session->arena, graph);
  quantize_undo(wide, name);
  return compute_other(v, wide);
}

static void print_likeness(const Verification *v, const char *what, const Graph *graph, const Tensor *got,
                           const Tensor *wanted) {
  StrBuf text = strbuf_new(v->session->arena);
  int width = (int)strlen(what);
  for (size_t i = 0; i < graph->outputs.n; i++) width = (int)fmax(width, (double)strlen(graph->outputs.items[i].name));
  strbuf_printf(&text, "%-*s    cosine     least    largest   distance\n", width, what);
  for (size_t i = 0; i < graph->outputs.n; i++) {
    const Likeness likeness = tensors_likeness(&got[i], &wanted[i]);
    strbuf_printf(&text, "%-*s  %8.6f  %8.6f  %9.3g  %9.3g\n", width, graph->outputs.items[i].name, likeness.cosine,
                  likeness.least, likeness.largest, likeness.distance);
  }
  session_print(&text);
}

/* The last value of each module, in f32, that an output needs. Its name is the module's path. */
static void show_modules(Graph *graph) {
  Map modules = map_new(graph->arena); /* path -> Node * */
  graph_renumber(graph);
  bool *needed = ARENA_ARRAY(graph->arena, bool, graph_count(graph));
  for (size_t i = 0; i < graph->outputs.n; i++) needed[graph->outputs.items[i].node->id] = true;
  for (const Node *node = graph->last; node; node = node->prev)
    for (size_t i = 0; needed[node->id] && i < node->inputs.n; i++) needed[node->inputs.items[i]->id] = true;
  const bool *is_static = graph_static_flags(graph->arena, graph);
  for (Node *node = graph->first; node; node = node->next) {
    const char *path = node->origin.path;
    if (!needed[node->id] || is_static[node->id] || node->dtype != DTYPE_F32 || node->op == OP_INPUT) continue;
    for (size_t n = strcspn(path, "."); *path; n += 1 + strcspn(path + n + 1, ".")) {
      map_put(&modules, arena_strndup(graph->arena, path, n), node);
      if (!path[n]) break;
    }
  }
  graph->outputs.n = 0;
  for (size_t i = 0; i < modules.n; i++)
    vec_push(graph->arena, &graph->outputs,
             (GraphOutput){.name = modules.items[i].key, .node = modules.items[i].value});
}

static void compare_modules(const Verification *v) {
  Graph *graph = graph_clone(v->session->arena, v->graph);
  show_modules(graph);
  const Tensor *wanted = graph->outputs.n ? compute_wide(v, graph, NULL) : NULL;
  const Tensor *got = wanted ? compute_other(v, graph) : NULL;
  if (got) print_likeness(v, "module", graph, got, wanted);
}

/* The mean of the distances of all outputs that are f32. */
static double mean_distance(const Verification *v, const Tensor *got, const Tensor *wanted) {
  double sum = 0;
  size_t n = 0;
  for (size_t i = 0; i < v->graph->outputs.n; i++) {
    if (got[i].dtype != DTYPE_F32) continue;
    sum += tensors_distance(&got[i], &wanted[i]);
    n++;
  }
  return isnan(sum) ? (double)INFINITY : n ? sum / (double)n : 0;
}

typedef struct Cost {
  const char *name;
  double distance; /* if this is left in f32 */
} Cost;

static int by_distance(const void *a, const void *b) {
  const Cost *x = a, *y = b;
  return x->distance < y->distance ? -1 : x->distance > y->distance ? 1 : strcmp(x->name, y->name);
}

/* What costs most comes first: without it the distance is the smallest. */
static void show_sensitivity(const Verification *v, const Tensor *got, const Tensor *wanted) {
  Session *session = v->session;
  Map names = map_new(session->arena);
  for (const Node *node = v->graph->first; node; node = node->next)
    if (quantized_name(v->graph, node)) map_put(&names, quantized_name(v->graph, node), NULL);
  Cost *costs = ARENA_ARRAY(session->arena, Cost, names.n);
  Progress *progress = progress_begin(session, "leaving out one at a time");
  size_t n = 0;
  for (const Tensor *one; n < names.n && (one = compute_wide(v, v->graph, names.items[n].key)); n++) {
    costs[n] = (Cost){names.items[n].key, mean_distance(v, one, wanted)};
    progress_set(progress, n + 1, names.n);
  }
  progress_end(progress);
  if (n < names.n) return; /* the message says why */
  qsort(costs, n, sizeof *costs, by_distance);
  StrBuf text = strbuf_new(session->arena);
  strbuf_printf(&text, "distance from f32 is %.3g; with this alone in f32:\n", mean_distance(v, got, wanted));
  for (size_t i = 0; i < n; i++) strbuf_printf(&text, "  %9.3g  %s\n", costs[i].distance,
                                               text_shown(session->arena, costs[i].name));
  session_print(&text);
}

static void check_likeness(Session *session, const char *name, const Tensor *got, const Tensor *wanted) {
  static const double USUAL_COSINE = 0.99;
  const double least = option_number(&session->options, OPTION_MIN_COSINE, USUAL_COSINE);
  const double cosine = tensors_likeness(got, wanted).cosine;
  if (!(cosine >= least))
    diag_error_at(&session->diag, name, DIAG_UNLIKE,
                  "the mean cosine of its rows with those of f32 is %.6f; %.6g is asked for (--min-cosine)", cosine,
                  least);
}

static bool has_fewer_bits(Graph *graph) {
  for (const Node *node = graph->first; node; node = node->next)
    if (quantized_name(graph, node)) return true;
  return false;
}

static void verify_f32(const Verification *v) {
  Session *session = v->session;
  if (!has_fewer_bits(v->graph)) {
    option_error(&session->diag, OPTION_QUANTIZE, "nothing in the model has fewer bits than in f32: give rules");
    return;
  }
  if (!has_tensors(v, "the model in f32")) return;
  const Tensor *wanted = compute_wide(v, v->graph, NULL);
  const Tensor *got = wanted ? compute(v, NULL) : NULL;
  if (!got) return;
  print_likeness(v, "output", v->graph, got, wanted);
  if (option_given(&session->options, OPTION_VERBOSE)) compare_modules(v);
  if (option_given(&session->options, OPTION_SENSITIVITY)) show_sensitivity(v, got, wanted);
  for (size_t i = 0; i < v->graph->outputs.n; i++)
    if (got[i].dtype == DTYPE_F32) check_likeness(session, v->graph->outputs.items[i].name, &got[i], &wanted[i]);
}

// ---- tfmc verify ----

/* False after an error. */
static bool check_options(Session *session, bool compares_with_f32) {
  const Options *options = &session->options;
  if (compares_with_f32 && option_given(options, OPTION_GOLDEN))
    option_error(&session->diag, OPTION_GOLDEN, "excludes --compare-with");
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

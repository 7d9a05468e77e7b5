/* The trainer of the runtime, with the engines of this compiler. See engine_trainer.h. */
#include "train/engine_trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tfm/abi/checkpoint.h"
#include "tfm/abi/forms.h"
#include "train/training_tables.h"

typedef enum GraphKind { OF_TOPS, OF_BOTTOMS, OF_VECTORS, OF_WHOLE, OF_BACK, N_KINDS } GraphKind;

struct Trainer {
  TrainerOptions options;
  TrainGraphs *graphs;
  const tfm_training *training;
  tfm_trainer *made;
  WeightSource *none;      /* engines ask for weights; the graphs have none */
  Engine *engines[N_KINDS]; /* NULL: there is no such graph */
  Graph *given[N_KINDS];    /* copies of the graphs: inputs and sizes, which engines rewrite */
};

static Arena *arena_of(const Trainer *t) { return t->options.settings->compile.arena; }
static Diag *diag_of(const Trainer *t) { return t->options.settings->compile.diag; }

// ---- engines without compiled code ----

static GraphKind kind_in(const tfm_objective *objective, const tfm_train_graph *graph) {
  return graph == &objective->bottoms           ? OF_BOTTOMS
         : graph == &objective->mixture.vectors ? OF_VECTORS
         : graph == &objective->mixture.whole   ? OF_WHOLE
         : graph == &objective->mixture.back    ? OF_BACK
                                                : OF_TOPS;
}

static GraphKind kind_of(const Trainer *t, const tfm_train_graph *graph) {
  const GraphKind kind = kind_in(&t->training->step, graph);
  return kind == OF_TOPS ? kind_in(&t->training->evaluation, graph) : kind;
}

static Graph *given(const Trainer *t, const tfm_train_graph *graph) { return t->given[kind_of(t, graph)]; }

/* The values of the run-time sizes, from axes that are one size and nothing more. */
static void bind_sizes(const Graph *graph, uint32_t n_inputs, const tfm_value *inputs, int64_t *symbols) {
  for (uint32_t i = 0; i < n_inputs; i++) {
    const Node *node = graph->inputs.items[i];
    for (uint32_t axis = 0; axis < node->rank && (int32_t)node->rank == inputs[i].rank; axis++) {
      const int32_t symbol = size_symbol_of(node->dims[axis]);
      if (symbol >= 0) symbols[symbol] = inputs[i].dims[axis];
    }
  }
}

static void set_dims(const Node *node, const int64_t *symbols, tfm_value *value) {
  int64_t *dims = (int64_t *)value->dims;
  value->dtype = (int32_t)node->dtype;
  value->rank = (int32_t)node->rank;
  for (uint32_t axis = 0; axis < node->rank; axis++)
    if (!size_value(node->dims[axis], symbols, &dims[axis])) dims[axis] = 0;
}

/* The trainer has room for the dims of the inputs that it makes itself, and of outputs. Sizes of the mixture are given:
 * its inputs are no batch's. */
static tfm_status bind(void *user, const tfm_train_graph *graph, tfm_value *inputs, tfm_value *outputs, int64_t *sizes,
                       tfm_error *error) {
  const Trainer *t = user;
  const Graph *from = given(t, graph);
  int64_t symbols[SIZE_MAX_SYMBOLS] = {0};
  (void)error;
  memcpy(symbols, sizes, t->training->n_sizes * sizeof *sizes);
  if (kind_of(t, graph) != OF_WHOLE) bind_sizes(from, t->graphs->n_inputs, inputs, symbols);
  for (uint32_t i = 0; i < graph->n_inputs; i++)
    if (graph->inputs[i].source == TFM_FROM_DROPOUT) set_dims(from->inputs.items[i], symbols, &inputs[i]);
  for (uint32_t i = 0; i < graph->n_outputs; i++) set_dims(from->outputs.items[i].node, symbols, &outputs[i]);
  memcpy(sizes, symbols, t->training->n_sizes * sizeof *sizes);
  return TFM_OK;
}

/* What computes the outputs of a graph of the trainer. */
typedef bool (*Compute)(void *user, const tfm_train_graph *graph, Arena *arena, const EvalInputs *inputs,
                        Tensor *results);

static bool compute_by_engine(void *user, const tfm_train_graph *graph, Arena *arena, const EvalInputs *inputs,
                              Tensor *results) {
  const Trainer *t = user;
  return engine_run(t->engines[kind_of(t, graph)], arena, inputs, results);
}

typedef struct Computer {
  Compute compute;
  void *user;
} Computer;

/* The interpreter takes f32. */
static bool is_narrow(const Trainer *t, const tfm_train_input *input) {
  return input->source == TFM_FROM_PARAMETER && t->training->parameters[input->number].form != TFM_FORM_F32;
}

static float *widened(const Trainer *t, Arena *arena, uint32_t parameter) {
  const int64_t n = t->training->parameters[parameter].elements;
  float *numbers = ARENA_ARRAY(arena, float, (size_t)n + 1);
  tfm_trainer_get(t->made, parameter, 0, n, numbers);
  return numbers;
}

/* Errors are in the diag already: the status has no message. */
static tfm_status run_by(const Trainer *t, Computer by, const tfm_train_graph *graph, const tfm_value *inputs,
                         const tfm_value *outputs, tfm_error *error) {
  const Graph *from = given(t, graph);
  Arena *arena = arena_create();
  const char **names = ARENA_ARRAY(arena, const char *, graph->n_inputs);
  Tensor *tensors = ARENA_ARRAY(arena, Tensor, graph->n_inputs);
  Tensor *results = ARENA_ARRAY(arena, Tensor, graph->n_outputs);
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    names[i] = from->inputs.items[i]->attr.name;
    tensors[i] = (Tensor){.dtype = (DType)inputs[i].dtype, .rank = (uint32_t)inputs[i].rank, .data = inputs[i].data};
    if (is_narrow(t, &graph->inputs[i])) tensors[i].data = widened(t, arena, graph->inputs[i].number);
    if (inputs[i].rank) memcpy(tensors[i].dims, inputs[i].dims, (size_t)inputs[i].rank * sizeof *inputs[i].dims);
  }
  const EvalInputs all = {names, tensors, graph->n_inputs};
  const bool good = by.compute(by.user, graph, arena, &all, results);
  for (uint32_t i = 0; good && i < graph->n_outputs; i++)
    if (tensor_elements(&results[i]) && outputs[i].data)
      memcpy(outputs[i].data, results[i].data, (size_t)tensor_elements(&results[i]) * dtype_bytes[results[i].dtype]);
  arena_destroy(arena);
  *error = (tfm_error){.status = good ? TFM_OK : TFM_E_INTERNAL};
  return error->status;
}

static tfm_status run(void *user, const tfm_train_graph *graph, const tfm_value *inputs, const tfm_value *outputs,
                      tfm_error *error) {
  return run_by(user, (Computer){compute_by_engine, user}, graph, inputs, outputs, error);
}

/* What the runtime says of an error that it did not find itself is a note. */
static bool report(const Trainer *t, const tfm_error *error) {
  if (error->status == TFM_E_INTERNAL && diag_has_errors(diag_of(t)))
    diag_note(diag_of(t), NO_SPAN, "%s", error->message);
  else
    report_runtime_error(diag_of(t), error);
  return false;
}

// ---- making ----

/* What is said of the passes is of the loss and its gradients; sums that divide them have no report of their own. */
static const EngineSettings *without_report(const Trainer *t) {
  EngineSettings *settings = arena_copy(arena_of(t), t->options.settings, sizeof *settings);
  settings->compile.report = NULL;
  settings->print = NULL;
  return settings;
}

static void say_steps(const Trainer *t) {
  const EngineSettings *settings = t->options.settings;
  if (!settings->print || !t->engines[OF_TOPS]->program) return;
  StrBuf text = strbuf_new(arena_of(t));
  const uint32_t n = t->engines[OF_TOPS]->program->n_steps;
  strbuf_printf(&text, "a part of a batch runs in %u step%s\n", n, n == 1 ? "" : "s");
  settings->print(&text);
}

static bool make_engine(Trainer *t, GraphKind kind, Graph *graph) {
  if (!graph) return true;
  t->given[kind] = graph_clone(arena_of(t), graph);
  const EngineSettings *settings = kind == OF_TOPS ? t->options.settings : without_report(t);
  t->engines[kind] = engine_create(t->options.kind, settings, graph, t->none);
  return t->engines[kind] != NULL;
}

/* Where items are mixed, with what several parts of a step need. */
static bool make_engines(Trainer *t) {
  const CutGraphs *cut = t->graphs->cut;
  const WeightRequest request = {.check = {.arena = arena_of(t), .diag = diag_of(t)}, .is_random = true};
  t->none = weight_source_open(&request, t->graphs->gradients);
  if (!t->none || !make_engine(t, OF_TOPS, t->graphs->gradients)) return false;
  if (!make_engine(t, OF_BOTTOMS, t->graphs->counts)) return false;
  say_steps(t);
  return !cut || (make_engine(t, OF_VECTORS, cut->vectors) && make_engine(t, OF_WHOLE, cut->mixture) &&
                  make_engine(t, OF_BACK, cut->back));
}

static tfm_context *context_of(const Trainer *t, GraphKind kind) {
  return t->engines[kind] ? t->engines[kind]->context : NULL;
}

static bool make(Trainer *t) {
  const bool is_training = t->graphs->seeds.n > 0;
  t->training = training_make(arena_of(t), is_training ? t->graphs : NULL, is_training ? NULL : t->graphs);
  if (!make_engines(t)) return false;
  tfm_context *tops = context_of(t, OF_TOPS), *bottoms = context_of(t, OF_BOTTOMS);
  tfm_context *vectors = context_of(t, OF_VECTORS), *whole = context_of(t, OF_WHOLE);
  const tfm_train_engine engine = {.step_tops = is_training ? tops : NULL,
                                   .step_bottoms = is_training ? bottoms : NULL,
                                   .step_vectors = is_training ? vectors : NULL,
                                   .step_whole = is_training ? whole : NULL,
                                   .step_back = context_of(t, OF_BACK),
                                   .tops = is_training ? NULL : tops,
                                   .bottoms = is_training ? NULL : bottoms,
                                   .vectors = is_training ? NULL : vectors,
                                   .whole = is_training ? NULL : whole,
                                   .user = t,
                                   .bind = bind,
                                   .run = run};
  const tfm_trainer_options options = {
      .struct_size = sizeof options, .seed = t->options.seed, .shards = t->options.shards};
  tfm_error error;
  return !tfm_trainer_create(t->training, &engine, &options, &t->made, &error) || report(t, &error);
}

Trainer *trainer_new(const TrainerOptions *options, TrainGraphs *graphs) {
  Trainer *t = ARENA_NEW(options->settings->compile.arena, Trainer);
  *t = (Trainer){.options = *options, .graphs = graphs};
  if (make(t)) return t;
  trainer_free(t);
  return NULL;
}

void trainer_free(Trainer *t) {
  if (!t) return;
  tfm_trainer_destroy(t->made);
  for (int kind = 0; kind < N_KINDS; kind++) engine_destroy(t->engines[kind]);
  weight_source_close(t->none);
}

tfm_trainer *trainer_made(const Trainer *t) { return t->made; }

void trainer_set(Trainer *t, uint32_t parameter, const float *numbers) {
  tfm_trainer_set(t->made, parameter, 0, t->training->parameters[parameter].elements, numbers);
}

const float *trainer_gradient(Trainer *t, uint32_t parameter) {
  return tfm_trainer_data(t->made, parameter, TFM_TENSOR_GRADIENT);
}

bool trainer_draw(Trainer *t, uint32_t parameter) {
  tfm_error error;
  if (t->training->parameters[parameter].initial.kind != TFM_INITIAL_NONE)
    return !tfm_trainer_draw_one(t->made, parameter, &error) || report(t, &error);
  diag_error_at(diag_of(t), "train", DIAG_WEIGHT_MISSING,
                "weight '%s' has no initial value: write 'weight ...: [...] = xavier_uniform()', or give --weights",
                t->training->parameters[parameter].path);
  return false;
}

void trainer_set_steps(Trainer *t, int64_t steps, const tfm_trainer_origin *origin) {
  tfm_trainer_set_steps(t->made, steps);
  tfm_trainer_set_origin(t->made, origin);
}

int64_t trainer_state_bytes(const Trainer *t) { return tfm_trainer_state_bytes(t->made); }

int64_t trainer_part_bytes(const Trainer *t, const int64_t *sizes) { return tfm_trainer_part_bytes(t->made, sizes); }

int64_t trainer_whole_bytes(const Trainer *t, const int64_t *sizes) { return tfm_trainer_whole_bytes(t->made, sizes); }

uint64_t trainer_common_sizes(const Trainer *t) { return t->graphs->cut ? t->graphs->cut->sizes : 0; }

bool trainer_has_adapter(const Trainer *t) { return tfm_trainer_has_adapter(t->made); }
const char *trainer_no_adapter(const Trainer *t) { return tfm_trainer_no_adapter(t->made); }

bool trainer_save_adapter(Trainer *t, const char *folder, const char *base) {
  tfm_error error;
  return !tfm_trainer_save_adapter(t->made, folder, base, &error) || report(t, &error);
}

bool trainer_write_start(Trainer *t, const char *path) {
  const tfm_state_head head = {
      .model = t->graphs->model, .seed = t->options.seed, .best = INFINITY, .best_score = -INFINITY};
  const char *part = arena_printf(arena_of(t), "%s.%ld.tmp", path, (long)getpid());
  tfm_error error;
  tfm_status status = tfm_trainer_write_start(t->made, part, &head, &error);
  if (!status && rename(part, path) != 0) status = tfm_file_failed(&error, path, "write the file");
  if (status) unlink(part);
  if (status) diag_error_at(diag_of(t), "pack", DIAG_FILE, "%s", error.message);
  return !status;
}

const Graph *trainer_counts(const Trainer *t) { return t->given[OF_BOTTOMS]; }

// ---- steps ----

/* Batches name their inputs; the trainer knows them by number. In `arena`. */
static tfm_train_parts parts_of(const Trainer *t, Arena *arena, const EvalInputs *batches, uint32_t n) {
  const uint32_t n_inputs = t->graphs->n_inputs;
  tfm_value *values = ARENA_ARRAY(arena, tfm_value, (size_t)n * n_inputs + 1);
  for (uint32_t i = 0; i < n; i++) {
    for (uint32_t k = 0; k < n_inputs; k++) {
      uint32_t at = 0;
      while (strcmp(batches[i].names[at], t->given[OF_TOPS]->inputs.items[k]->attr.name) != 0) at++;
      const Tensor *tensor = &batches[i].tensors[at];
      values[i * n_inputs + k] = (tfm_value){tensor->data, (int32_t)tensor->dtype, (int32_t)tensor->rank, tensor->dims};
    }
  }
  return (tfm_train_parts){.n = n, .values = values};
}

/* The text of the model stands beside this message. */
bool trainer_may_cut(const Trainer *t, uint32_t n, bool is_step) {
  const ResultParts *whole = t->graphs->whole;
  if (n < 2 || !whole || t->graphs->cut) return true;
  const char *cure = is_step ? "a step must be one part: a smaller batch, a larger --memory or --part-tokens, no "
                               "--accumulate, no --shards"
                             : "the data must be one batch: a larger --batch-items or --batch-tokens; or leave the "
                               "result out";
  const char *why = train_graphs_whole(arena_of(t), t->graphs);
  if (whole->where.source)
    diag_error(diag_of(t), whole->where, DIAG_INPUT_DECLARATION, "%s, and there are %u; %s", why, n, cure);
  else
    diag_error_at(diag_of(t), "train", DIAG_INPUT_DECLARATION, "%s, and there are %u; %s", why, n, cure);
  return false;
}

bool trainer_evaluate(Trainer *t, const EvalInputs *batches, uint32_t n, double *results) {
  tfm_error error;
  if (!trainer_may_cut(t, n, false)) return false;
  Arena *arena = arena_create();
  const tfm_train_parts parts = parts_of(t, arena, batches, n);
  const tfm_status status = tfm_train_evaluate(t->made, &parts, results, &error);
  arena_destroy(arena);
  return !status || report(t, &error);
}

// ---- where a step went wrong ----

typedef struct Search { /* the interpreter's run of a step that diverged */
  Trainer *trainer;
  Map odd;                 /* nodes whose value is not finite, as keys */
  const Node *first, *nan; /* the first that made such a value of finite ones; the first NaN of none */
  Map nans;
} Search;

static bool is_among(const Map *map, const Node *node) { return map_find(map, &node, sizeof node) != NULL; }

static bool has_any(const Map *map, const Node *node) {
  for (size_t i = 0; i < node->inputs.n; i++)
    if (is_among(map, node->inputs.items[i])) return true;
  return false;
}

/* An infinite constant is a mask, and what masks reach is as it should be: an operation is to blame that makes what is
 * not finite of what is, or NaN of what is none. */
static void look_at(void *context, const Node *node, const Tensor *value) {
  Search *search = context;
  if (value->dtype != DTYPE_F32 || search->first) return;
  const float *numbers = value->data;
  bool is_odd = false, has_nan = false;
  for (int64_t i = 0, n = tensor_elements(value); i < n; i++) {
    is_odd |= !isfinite(numbers[i]);
    has_nan |= isnan(numbers[i]) != 0;
  }
  if (is_odd) map_put_n(&search->odd, &node, sizeof node, NULL);
  if (has_nan) map_put_n(&search->nans, &node, sizeof node, NULL);
  if (is_odd && node->op != OP_FULL && !has_any(&search->odd, node)) search->first = node;
  if (has_nan && !search->nan && !has_any(&search->nans, node)) search->nan = node;
}

static tfm_status bind_again(void *user, const tfm_train_graph *graph, tfm_value *inputs, tfm_value *outputs,
                             int64_t *sizes, tfm_error *error) {
  return bind(((Search *)user)->trainer, graph, inputs, outputs, sizes, error);
}

static bool interpret(void *user, const tfm_train_graph *graph, Arena *arena, const EvalInputs *inputs,
                      Tensor *results) {
  Search *search = user;
  const Trainer *t = search->trainer;
  const EvalOptions watched = {.observer = look_at, .observer_context = search};
  const EvalCall call = {.graph = given(t, graph), .inputs = inputs, .options = watched};
  return graph_eval(arena, diag_of(t), &call, results);
}

static tfm_status run_again(void *user, const tfm_train_graph *graph, const tfm_value *inputs, const tfm_value *outputs,
                            tfm_error *error) {
  return run_by(((Search *)user)->trainer, (Computer){interpret, user}, graph, inputs, outputs, error);
}

/* Multiplications of a run with these sizes, about; the interpreter does some hundred million a second. */
static double work_of(const Graph *graph, const int64_t *symbols) {
  double work = 0;
  for (const Node *node = graph->first; node; node = node->next) {
    int64_t dim;
    double each = 1;
    for (uint32_t i = 0; i < node->rank; i++) each *= size_value(node->dims[i], symbols, &dim) ? (double)dim : 1;
    const Node *x = op_table[node->op].category == CATEGORY_CONTRACT ? node->inputs.items[0] : NULL;
    if (x && x->rank && size_value(x->dims[x->rank - 1], symbols, &dim)) each *= (double)dim;
    work += each;
  }
  return work;
}

/* Runs the step once more in a trainer without compiled code, and names the operation that is to blame. */
static void find_fault(Trainer *t, const tfm_train_parts *parts, int64_t epoch, double *results) {
  Search search = {.trainer = t, .odd = map_new(arena_of(t)), .nans = map_new(arena_of(t))};
  const tfm_train_engine engine = {.user = &search, .bind = bind_again, .run = run_again};
  const tfm_trainer_options options = {.struct_size = sizeof options, .seed = t->options.seed, .fills = 1};
  tfm_trainer *again;
  tfm_error error;
  if (tfm_trainer_create(t->training, &engine, &options, &again, &error)) return;
  for (uint32_t i = 0; i < t->training->n_parameters; i++)
    tfm_trainer_lend(again, i, tfm_trainer_place(t->made, i));
  tfm_trainer_set_steps(again, tfm_trainer_steps(t->made));
  tfm_trainer_set_epoch(again, epoch);
  tfm_train_gradients(again, parts, 0, results, &error);
  tfm_trainer_destroy(again);
  const Node *node = search.first ? search.first : search.nan;
  if (!node) return;
  const char *path = node->origin.path;
  if (node->op == OP_INPUT)
    diag_note(diag_of(t), NO_SPAN, "'%s' is not finite", node->attr.name);
  else
    diag_note(diag_of(t), origin_place(&node->origin), "the first result that is not finite is that of '%s'%s%s",
              op_table[node->op].name, *path ? ", in " : "", path);
}

/* Only where the interpreter has an answer within half a minute or so. */
static void explain(Trainer *t, const tfm_train_parts *parts, int64_t epoch, double *results) {
  const double most = 4e9;
  double work = 0;
  for (int64_t i = 0; i < parts->n; i++) {
    int64_t symbols[SIZE_MAX_SYMBOLS] = {0};
    bind_sizes(t->given[OF_TOPS], t->graphs->n_inputs, parts->values + i * t->graphs->n_inputs, symbols);
    work += work_of(t->given[OF_TOPS], symbols);
  }
  if (work < most) find_fault(t, parts, epoch, results);
}

bool trainer_step(Trainer *t, const EvalInputs *batches, uint32_t n, int64_t epoch, StepResult *result) {
  tfm_error error;
  if (!trainer_may_cut(t, n, true)) return false;
  Arena *arena = arena_create();
  const tfm_train_parts parts = parts_of(t, arena, batches, n);
  tfm_trainer_set_epoch(t->made, epoch);
  tfm_status status = tfm_train_gradients(t->made, &parts, 0, result->results, &error);
  if (!status) status = tfm_train_update(t->made, result->results[0], &result->norm, &result->rate, &error);
  if (status) report(t, &error);
  if (status == TFM_E_DIVERGED) explain(t, &parts, epoch, result->results);
  arena_destroy(arena);
  return !status;
}

/* tfmc train and tfmc evaluate: steps of training on given batches, and the results of an objective.
 *
 * In: a model with a train block, its weights (or none: then its initial values), a file of batches, with tensors NAME
 * or, if there are several batches, NAME@0, NAME@1 ... Out: a safetensors file with the results, the weights and, if
 * asked for, gradients, losses, norms and rates; or a summary. Refuses batches that lack an input. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/commands/training.h"
#include "cli/model.h"
#include "cli/outputs.h"
#include "weights/safetensors.h"

// ---- batches ----

typedef struct Batches {
  VEC(EvalInputs) items;
} Batches;

/* "ids@3" is input `ids` of batch 3, "ids" that of the only batch. False after an error. */
static bool read_name(Session *session, const char *path, const char *text, char **name, uint32_t *batch) {
  enum { MOST_BATCHES = 1000000 };
  const char *at = strrchr(text, '@');
  char *end = NULL;
  const unsigned long number = at ? strtoul(at + 1, &end, 10) : 0;
  *name = arena_strndup(session->arena, text, at ? (size_t)(at - text) : strlen(text));
  *batch = (uint32_t)number;
  if (!at || (end != at + 1 && !*end && number < MOST_BATCHES)) return true;
  diag_error_at(&session->diag, path, DIAG_INPUT_UNKNOWN,
                "tensor \"%s\": after the @ stands the number of a batch, 0 to %d", text, MOST_BATCHES - 1);
  return false;
}

static const Node *find_input(Session *session, const Graph *graph, uint32_t n, const char *path, const char *name) {
  const char **names = ARENA_ARRAY(session->arena, const char *, n);
  for (uint32_t i = 0; i < n; i++) {
    names[i] = graph->inputs.items[i]->attr.name;
    if (strcmp(names[i], name) == 0) return graph->inputs.items[i];
  }
  const char *nearest = diag_nearest(name, names, n);
  diag_error_at(&session->diag, path, DIAG_INPUT_UNKNOWN, "the objective has no input \"%s\"%s%s%s", name,
                nearest ? ", did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
  return NULL;
}

/* Reads one tensor into its batch; `n` inputs are the objective's. */
static void read_tensor(Session *session, const Graph *graph, uint32_t n, const TensorFile *file,
                        const FileTensor *tensor, Batches *batches) {
  char *name;
  uint32_t batch;
  const char *path = file->file.path;
  if (!read_name(session, path, tensor->name, &name, &batch)) return;
  const Node *input = find_input(session, graph, n, path, name);
  if (!input) return;
  if (!can_convert(tensor->dtype, input->dtype) || (input->dtype == DTYPE_F32 && tensor->dtype != FILE_F32)) {
    diag_error_at(&session->diag, path, DIAG_INPUT_TYPE, "input \"%s\": type %s, the objective wants %s", tensor->name,
                  tensor->dtype_name, dtype_names[input->dtype]);
    return;
  }
  if (tensor->rank > MAX_RANK) {
    diag_error_at(&session->diag, path, DIAG_INPUT_SHAPE, "input \"%s\": %u axes; at most %d are possible",
                  tensor->name, tensor->rank, MAX_RANK);
    return;
  }
  while (batches->items.n <= batch) {
    EvalInputs empty = {ARENA_ARRAY(session->arena, const char *, n), ARENA_ARRAY(session->arena, Tensor, n), 0};
    vec_push(session->arena, &batches->items, empty);
  }
  EvalInputs *of = &batches->items.items[batch];
  for (uint32_t i = 0; i < of->n; i++) {
    if (strcmp(of->names[i], name) != 0) continue;
    diag_error_at(&session->diag, path, DIAG_USAGE, "input \"%s\" of batch %u is given twice", name, batch);
    return;
  }
  Tensor *to = (Tensor *)&of->tensors[of->n];
  *to = *tensor_new_named(session->arena, "input", name, input->dtype, tensor->rank, tensor->dims);
  ((const char **)of->names)[of->n++] = input->attr.name;
  tensor_file_read(file, &session->diag, tensor, input->dtype, to->data);
}

static void report_missing(Session *session, const char *path, const Graph *graph, uint32_t n, const Batches *batches) {
  for (uint32_t b = 0; b < batches->items.n; b++) {
    const EvalInputs *of = &batches->items.items[b];
    for (uint32_t i = 0; i < n; i++) {
      uint32_t k = 0;
      while (k < of->n && strcmp(of->names[k], graph->inputs.items[i]->attr.name) != 0) k++;
      if (k < of->n) continue;
      StrBuf shape = strbuf_new(session->arena);
      node_print_shape(&shape, graph->sizes, graph->inputs.items[i]);
      diag_error_at(&session->diag, path, DIAG_INPUT_MISSING, "input \"%s\": %s of batch %u is not given",
                    graph->inputs.items[i]->attr.name, shape.text, b);
    }
  }
}

/* NULL after an error. */
static Batches *batches_load(Session *session, const Graph *graph, uint32_t n) {
  const char *path = option_text(&session->options, OPTION_BATCHES, NULL);
  Batches *batches = ARENA_NEW(session->arena, Batches);
  if (!path) {
    option_error(&session->diag, OPTION_BATCHES, "the inputs of the objective are needed: give a safetensors file");
    return NULL;
  }
  TensorFile *file = safetensors_open(session->arena, &session->diag, path);
  for (size_t i = 0; file && i < file->tensors.n; i++)
    read_tensor(session, graph, n, file, file->tensors.items[i], batches);
  tensor_file_close(file);
  if (diag_has_errors(&session->diag)) return NULL;
  report_missing(session, path, graph, n, batches);
  if (!batches->items.n) diag_error_at(&session->diag, path, DIAG_INPUT_MISSING, "the file has no batch");
  return diag_has_errors(&session->diag) ? NULL : batches;
}

// ---- outputs ----

typedef struct Written {
  Arena *arena;
  VEC(const char *) names;
  VEC(Tensor) tensors;
} Written;

static void add_tensor(Written *w, const char *name, uint32_t rank, const int64_t *dims, const float *data) {
  Tensor tensor = *tensor_new(w->arena, DTYPE_F32, rank, dims);
  const size_t bytes = (size_t)tensor_elements(&tensor) * sizeof *data;
  if (bytes) memcpy(tensor.data, data, bytes);
  vec_push(w->arena, &w->names, name);
  vec_push(w->arena, &w->tensors, tensor);
}

static void add_numbers(Written *w, const char *name, uint32_t rank, int64_t n, const double *numbers) {
  float *data = ARENA_ARRAY(w->arena, float, (size_t)n + 1);
  for (int64_t i = 0; i < n; i++) data[i] = (float)numbers[i];
  add_tensor(w, name, rank, &n, data);
}

static void add_results(Written *w, const TrainGraphs *graphs, const double *results) {
  for (size_t i = 0; i < graphs->results.n; i++) add_numbers(w, graphs->results.items[i].name, 0, 1, &results[i]);
}

static void add_parameters(Written *w, Training *t, bool are_gradients) {
  for (uint32_t i = 0; i < t->graphs->parameters.n; i++) {
    const Parameter *p = &t->graphs->parameters.items[i];
    if (are_gradients && p->gradient == NO_OUTPUT) continue;
    const char *name = arena_printf(w->arena, "%s.%s", are_gradients ? "grad" : "after", p->path);
    add_tensor(w, name, p->rank, p->dims,
               are_gradients ? trainer_gradient(t->trainer, i) : trainer_weight(t->trainer, i));
  }
}

static void write(Session *session, const Written *w) {
  outputs_write_named(session, w->names.items, w->tensors.items, (uint32_t)w->names.n);
}

static void print_results(StrBuf *out, const TrainGraphs *graphs, const double *results) {
  for (size_t i = 0; i < graphs->results.n; i++)
    strbuf_printf(out, "%s%s %.6g", i ? "  " : "", graphs->results.items[i].name, results[i]);
}

// ---- tfmc train ----

typedef struct Log { /* what each step gave */
  VEC(double) losses, norms, rates;
} Log;

/* In an arena of its own: there may be many steps. */
static void print_step(const Training *t, uint64_t step, uint64_t steps, const StepResult *result) {
  if (option_given(&t->session->options, OPTION_QUIET)) return;
  Arena *arena = arena_create();
  StrBuf line = strbuf_new(arena);
  strbuf_printf(&line, "step %llu/%llu  ", (unsigned long long)step + 1, (unsigned long long)steps);
  print_results(&line, t->graphs, result->results);
  strbuf_printf(&line, "  lr %.4g  norm %.4g\n", result->rate, result->norm);
  session_print(&line);
  arena_destroy(arena);
}

static void log_step(Arena *arena, Log *log, const StepResult *result) {
  vec_push(arena, &log->losses, result->results[0]);
  vec_push(arena, &log->norms, result->norm);
  vec_push(arena, &log->rates, result->rate);
}

static void add_log(Written *w, const Log *log) {
  add_numbers(w, "losses", 1, (int64_t)log->losses.n, log->losses.items);
  add_numbers(w, "norms", 1, (int64_t)log->norms.n, log->norms.items);
  add_numbers(w, "rates", 1, (int64_t)log->rates.n, log->rates.items);
}

/* Steps take the batches in turn, `accumulate` at a time, round and round. */
static bool run_steps(Training *t, const Batches *batches, uint64_t steps, Written *w) {
  Arena *arena = t->session->arena;
  const Options *options = &t->session->options;
  const uint64_t accumulate = option_count(options, OPTION_ACCUMULATE, 1), n = batches->items.n;
  const bool has_gradients = option_given(options, OPTION_GRADIENTS);
  EvalInputs *chosen = ARENA_ARRAY(arena, EvalInputs, accumulate);
  Log log = {0};
  StepResult result = {.results = ARENA_ARRAY(arena, double, t->graphs->results.n)};
  for (uint64_t k = 0; k < steps; k++) {
    for (uint64_t i = 0; i < accumulate; i++) chosen[i] = batches->items.items[(k * accumulate + i) % n];
    if (!trainer_step(t->trainer, chosen, (uint32_t)accumulate, (int64_t)(k * accumulate / n), &result)) return false;
    if (k == 0) add_results(w, t->graphs, result.results);
    if (k == 0 && has_gradients) add_parameters(w, t, true);
    if (has_gradients) log_step(arena, &log, &result);
    print_step(t, k, steps, &result);
  }
  if (has_gradients) add_log(w, &log);
  return true;
}

/* Options that say something about --data alone. */
static bool check_no_data(Session *session) {
  const Option of_data[] = {OPTION_OUT,        OPTION_VALID,       OPTION_EPOCHS,      OPTION_RESUME,
                            OPTION_SAVE_EVERY, OPTION_VALID_EVERY, OPTION_BATCH_ITEMS, OPTION_BATCH_TOKENS};
  for (size_t i = 0; i < sizeof of_data / sizeof *of_data; i++)
    if (option_given(&session->options, of_data[i]))
      option_error(&session->diag, of_data[i], "it needs --data, the items to train on");
  return !diag_has_errors(&session->diag);
}

void command_train(Session *session) {
  Training t;
  Written written = {.arena = session->arena};
  const uint64_t steps = option_count(&session->options, OPTION_STEPS, 1);
  if (option_given(&session->options, OPTION_DATA)) {
    train_on_data(session);
    return;
  }
  if (!check_no_data(session) || !outputs_check_files(session)) return;
  bool good = training_begin(&t, session, true, true);
  if (good && steps) {
    const Batches *batches = batches_load(session, t.graph, t.n_inputs);
    good = batches && run_steps(&t, batches, steps, &written);
  }
  if (good) {
    add_parameters(&written, &t, false);
    write(session, &written);
  }
  trainer_free(t.trainer);
}

// ---- tfmc evaluate ----

static bool evaluated_batches(Training *t, EvalInputs **batches, uint32_t *n) {
  if (option_given(&t->session->options, OPTION_DATA)) return batches_of_data(t, batches, n);
  Batches *loaded = batches_load(t->session, t->graph, t->n_inputs);
  if (!loaded) return false;
  *batches = loaded->items.items;
  *n = (uint32_t)loaded->items.n;
  return true;
}

void command_evaluate(Session *session) {
  Training t;
  Written written = {.arena = session->arena};
  if (!outputs_check_files(session)) return;
  if (training_begin(&t, session, false, true)) {
    EvalInputs *batches;
    uint32_t n;
    double *results = ARENA_ARRAY(session->arena, double, t.graphs->results.n);
    if (evaluated_batches(&t, &batches, &n) && trainer_evaluate(t.trainer, batches, n, results)) {
      StrBuf text = strbuf_new(session->arena);
      add_results(&written, t.graphs, results);
      print_results(&text, t.graphs, results);
      strbuf_add_char(&text, '\n');
      write(session, &written);
      if (!option_given(&session->options, OPTION_OUTPUT)) session_print(&text);
    }
  }
  trainer_free(t.trainer);
}

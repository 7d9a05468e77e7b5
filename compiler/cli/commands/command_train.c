/* tfmc train and tfmc evaluate: a training run on data, or steps on given batches; the results of an objective.
 *
 * In: a model with a train block, its weights (or none: then its initial values), and items of --data, which go to a
 * folder as train/course.h describes it; or a file of batches, with tensors NAME or, if there are several batches,
 * NAME@0, NAME@1 ... Out: that folder, or a safetensors file with the results, the weights and, if asked for,
 * gradients, losses, norms and rates; or a summary. Refuses batches that lack an input, and, before anything is read,
 * options that do not fit together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/commands/given_batches.h"
#include "cli/outputs.h"
#include "cli/cli_training.h"
#include "train/course.h"

// ---- numbers of the command line ----

enum { BATCH_TOKENS = 4096, POOL = 100, LOG_EVERY = 50, KEEP = 3 };

static int64_t count(const Session *session, Option option, int64_t otherwise) {
  return (int64_t)option_count(&session->options, option, (uint64_t)otherwise);
}

static bool given(const Session *session, Option option) { return option_given(&session->options, option); }

// ---- data ----

static OrderRequest order_request(const Session *session) {
  const int64_t items = count(session, OPTION_BATCH_ITEMS, 0);
  return (OrderRequest){.batch_items = items,
                        .batch_tokens = items ? 0 : count(session, OPTION_BATCH_TOKENS, BATCH_TOKENS),
                        .pool = count(session, OPTION_POOL, POOL),
                        .is_given = option_is(&session->options, OPTION_ORDER, "random", "given"),
                        .seed = option_count(&session->options, OPTION_SEED, 0)};
}

static DataSet *open_data(const Training *t, Option option) {
  Session *session = t->session;
  const OptionValues *values = &session->options.values[option];
  const DataRequest request = {.arena = session->arena,
                               .diag = &session->diag,
                               .graph = t->graph,
                               .n_inputs = t->n_inputs,
                               .batch = t->graphs->objective->batch,
                               .paths = values->texts.items,
                               .n_paths = values->texts.n,
                               .window = count(session, OPTION_WINDOW, 0),
                               .most_tokens = order_request(session).batch_tokens,
                               .skips_long = given(session, OPTION_SKIP_LONG)};
  return data_open(&request);
}

/* For `tfmc evaluate`: in the order of lengths. False after an error. */
static bool batches_of_data(Training *t, EvalInputs **batches, uint32_t *n) {
  Session *session = t->session;
  const OrderRequest request = order_request(session);
  DataSet *data = open_data(t, OPTION_DATA);
  if (!data) return false;
  Order *order = order_of_file(session->arena, data, &request);
  bool good = true;
  *n = (uint32_t)order->batches.n;
  *batches = ARENA_ARRAY(session->arena, EvalInputs, *n);
  int64_t least[SIZE_MAX_SYMBOLS] = {0};
  if (*n > 1) data_longest(data, NULL, data->n_items, trainer_common_sizes(t->trainer), least);
  for (uint32_t i = 0; i < *n && good; i++) {
    const Batch batch = order->batches.items[i];
    good = data_batch_padded(data, session->arena, order->items + batch.first, batch.n, least, &(*batches)[i]);
  }
  data_close(data);
  return good;
}

// ---- options ----

static bool refuse(Session *session, Option option, const char *why) {
  option_error(&session->diag, option, "%s", why);
  return false;
}

static bool resets(const Session *session, const char *what) {
  const OptionValues *values = &session->options.values[OPTION_RESET];
  for (size_t i = 0; i < values->texts.n; i++)
    if (strcmp(values->texts.items[i], what) == 0) return true;
  return false;
}

/* Every --reset is one of the three; shards are a power of two. */
static bool check_words(Session *session) {
  static const char *const words[] = {"optimizer", "schedule", "data"};
  const OptionValues *values = &session->options.values[OPTION_RESET];
  const int64_t shards = count(session, OPTION_SHARDS, 1);
  for (size_t i = 0; i < values->texts.n; i++) {
    size_t k = 0;
    while (k < 3 && strcmp(values->texts.items[i], words[k]) != 0) k++;
    if (k == 3) return refuse(session, OPTION_RESET, "it is optimizer, schedule or data");
  }
  if (shards & (shards - 1)) return refuse(session, OPTION_SHARDS, "shards are a power of two");
  return true;
}

static bool check_options(Session *session) {
  if (!check_words(session)) return false;
  const bool only_looks = given(session, OPTION_STEPS) && !count(session, OPTION_STEPS, 0);
  const Option others[] = {OPTION_BATCHES, OPTION_ACCUMULATE, OPTION_GRADIENTS, OPTION_OUTPUT};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (given(session, others[i]))
      return refuse(session, others[i], "it does not go with --data; --out names a folder");
  if (given(session, OPTION_STEPS) && given(session, OPTION_EPOCHS))
    return refuse(session, OPTION_EPOCHS, "give --steps or --epochs, not both");
  if (given(session, OPTION_BATCH_TOKENS) && given(session, OPTION_BATCH_ITEMS))
    return refuse(session, OPTION_BATCH_ITEMS, "give --batch-tokens or --batch-items, not both");
  if (given(session, OPTION_VALID_EVERY) && !given(session, OPTION_VALID))
    return refuse(session, OPTION_VALID_EVERY, "there is nothing to validate on: --valid names the data");
  if (given(session, OPTION_EARLY_STOPPING) && !given(session, OPTION_VALID))
    return refuse(session, OPTION_EARLY_STOPPING, "there is nothing to validate on: --valid names the data");
  if (given(session, OPTION_BEST) && !given(session, OPTION_VALID))
    return refuse(session, OPTION_BEST, "there is nothing to validate on: --valid names the data");
  if (given(session, OPTION_POOL) && option_is(&session->options, OPTION_ORDER, "random", "given"))
    return refuse(session, OPTION_POOL, "it does not go with --order=given, which brings no items together");
  if (given(session, OPTION_NEW) && !given(session, OPTION_WEIGHTS))
    return refuse(session, OPTION_NEW, "without --weights all weights are new");
  if (given(session, OPTION_VALID_COMMAND) && !given(session, OPTION_VALID))
    return refuse(session, OPTION_VALID_COMMAND, "it is run after each validation: --valid names the data");
  if (given(session, OPTION_RESET) && !given(session, OPTION_RESUME))
    return refuse(session, OPTION_RESET, "a new run begins anew in everything: it goes with --resume");
  if (!given(session, OPTION_OUT) && !only_looks)
    return refuse(session, OPTION_OUT, "the folder for checkpoints, weights and the log is needed");
  return true;
}

// ---- the run ----

/* The folder of --weights, without an adapter behind it; NULL: it is none. */
static const char *base_folder(Session *session) {
  const char *path = option_text(&session->options, OPTION_WEIGHTS, NULL), *plus = path ? strrchr(path, '+') : NULL;
  struct stat status;
  if (path && stat(path, &status) != 0 && plus) path = arena_strndup(session->arena, path, (size_t)(plus - path));
  return path && stat(path, &status) == 0 && S_ISDIR(status.st_mode) ? path : NULL;
}

/* A run that is resumed has its weights, but for those that adapters are for. */
static bool check_base(const Training *t) {
  Session *session = t->session;
  if (!given(session, OPTION_RESUME) || !given(session, OPTION_WEIGHTS)) return true;
  for (size_t i = 0; i < t->graphs->parameters.n; i++)
    if (t->graphs->parameters.items[i].gradient == NO_OUTPUT) return true;
  return refuse(session, OPTION_WEIGHTS, "a run that is resumed has its weights, and none of them are frozen");
}

/* Whether --best names a result of the objective, or the score of a command. */
static bool check_best(const Training *t) {
  Session *session = t->session;
  const char *best = option_text(&session->options, OPTION_BEST, "-loss"), *name = best + (*best == '-');
  bool is_there = !given(session, OPTION_BEST);
  is_there |= strcmp(name, "score") == 0 && given(session, OPTION_VALID_COMMAND);
  for (size_t i = 0; i < t->graphs->results.n; i++) is_there |= strcmp(name, t->graphs->results.items[i].name) == 0;
  return is_there || refuse(session, OPTION_BEST, "it names no result of the objective, nor the `score` of a "
                                                  "--valid-command");
}

static bool fill_request(const Training *t, CourseRequest *request) {
  Session *session = t->session;
  const int64_t planned = (int64_t)t->graphs->objective->settings.steps;
  *request = (CourseRequest){
      .arena = session->arena,
      .diag = &session->diag,
      .trainer = t->trainer,
      .graphs = t->graphs,
      .order = order_request(session),
      .parts = {.tokens = count(session, OPTION_PART_TOKENS, 0), .shards = count(session, OPTION_SHARDS, 1)},
      .steps = count(session, OPTION_STEPS, given(session, OPTION_EPOCHS) ? 0 : planned),
      .epochs = count(session, OPTION_EPOCHS, 0),
      .valid_every = count(session, OPTION_VALID_EVERY, 0),
      .save_every = count(session, OPTION_SAVE_EVERY, count(session, OPTION_VALID_EVERY, 0)),
      .log_every = count(session, OPTION_LOG_EVERY, LOG_EVERY),
      .keep = count(session, OPTION_KEEP, KEEP),
      .patience = count(session, OPTION_EARLY_STOPPING, 0),
      .folder = option_text(&session->options, OPTION_OUT, NULL),
      .base = base_folder(session),
      .valid_command = option_text(&session->options, OPTION_VALID_COMMAND, NULL),
      .best = option_text(&session->options, OPTION_BEST, NULL),
      .resumes = given(session, OPTION_RESUME),
      .resets_optimizer = resets(session, "optimizer"),
      .resets_schedule = resets(session, "schedule"),
      .resets_data = resets(session, "data"),
      .is_quiet = given(session, OPTION_QUIET),
      .skips_empty = strcmp(option_text(&session->options, OPTION_EMPTY_BATCHES, "error"), "skip") == 0,
      .model = t->graphs->model};
  if (request->steps || request->epochs || given(session, OPTION_STEPS)) return true;
  return refuse(session, OPTION_STEPS, "how long? Give --steps or --epochs, or `steps` in the train block");
}

/* The objective without dropout, for validation. False after an error. */
static bool add_judge(Training *judge, CourseRequest *request, DataSet **valid) {
  Session *session = judge->session;
  if (!given(session, OPTION_VALID)) return true;
  if (!training_begin(judge, session, &(TrainingWish){0})) return false;
  *valid = open_data(judge, OPTION_VALID);
  request->judge = judge->trainer;
  request->judge_graphs = judge->graphs;
  request->valid = *valid;
  return *valid != NULL;
}

static bool fits(const void *room, const int64_t *items, int64_t n) { return room_has(room, items, n); }

/* Half of what the machine has; 0: nobody knows. */
static int64_t half_of_memory(void) {
  const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && bytes > 0 ? (int64_t)pages * bytes / 2 : 0;
}

/* Bounds the parts by --memory. Without it, and without --part-tokens, half of the machine's memory is the bound, so
 * that a batch that is too large is computed in parts and nothing is swapped out. */
static bool make_room(Session *session, CourseRequest *request, StrBuf *note) {
  const bool is_asked_for = given(session, OPTION_MEMORY);
  const int64_t bytes = is_asked_for ? count(session, OPTION_MEMORY, 0) : half_of_memory();
  if (!bytes || (!is_asked_for && given(session, OPTION_PART_TOKENS))) return true;
  Room *room = ARENA_NEW(session->arena, Room);
  const RoomRequest wanted = {.diag = &session->diag,
                              .trainer = request->trainer,
                              .judge = request->judge,
                              .data = request->data,
                              .valid = request->valid,
                              .order = &request->order,
                              .bytes = bytes,
                              .note = is_asked_for ? NULL : note};
  if (!is_asked_for && room_is_ample(&wanted)) return true;
  if (!room_make(&wanted, room)) return !is_asked_for;
  request->parts.fits = fits;
  request->parts.fits_context = room;
  return true;
}

static bool describe(const CourseRequest *request, const StrBuf *note) {
  StrBuf text = strbuf_new(request->arena);
  if (!course_describe(&text, request)) return false;
  strbuf_add_n(&text, note->text, note->length);
  if (request->is_quiet) return true;
  session_print(&text);
  fflush(stdout); /* a log shows it while the first steps run */
  return true;
}

/* 128 and the number of the signal, as a shell gives it for a process that the signal killed. */
enum { EXIT_BY_SIGNAL = 128 };

static void train_on_data(Session *session) {
  Training t = {0}, judge = {.session = session};
  CourseRequest request = {0};
  StrBuf note = strbuf_new(session->arena);
  int signal = 0;
  if (!check_options(session)) return;
  const bool resumes = given(session, OPTION_RESUME);
  DataSet *data = NULL, *valid = NULL;
  const bool only_looks = given(session, OPTION_STEPS) && !count(session, OPTION_STEPS, 0);
  const TrainingWish wish = {.is_training = true, .fills = !only_looks, .resumes = resumes};
  bool good = training_begin(&t, session, &wish) && check_base(&t) && check_best(&t) && fill_request(&t, &request);
  if (good) data = open_data(&t, OPTION_DATA);
  request.data = data;
  good = good && data && add_judge(&judge, &request, &valid) && make_room(session, &request, &note);
  if (good) request.divisors = divisors_new(session->arena, t.graphs, trainer_counts(t.trainer), data);
  good = good && describe(&request, &note);
  if (good && (request.steps || request.epochs) && course_run(&request, &signal) && signal)
    session->diag.exit_code = EXIT_BY_SIGNAL + signal;
  data_close(data);
  data_close(valid);
  trainer_free(judge.trainer);
  trainer_free(t.trainer);
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
    Tensor *tensor = tensor_new(w->arena, DTYPE_F32, p->rank, p->dims);
    if (are_gradients) memcpy(tensor->data, trainer_gradient(t->trainer, i), (size_t)p->elements * sizeof(float));
    else tfm_trainer_get(trainer_made(t->trainer), i, 0, p->elements, tensor->data);
    vec_push(w->arena, &w->names, name);
    vec_push(w->arena, &w->tensors, *tensor);
  }
}

static void write_results(Session *session, const Written *w) {
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
  const Option of_data[] = {OPTION_OUT,        OPTION_VALID,         OPTION_EPOCHS,      OPTION_RESUME,
                            OPTION_SAVE_EVERY, OPTION_VALID_EVERY,   OPTION_BATCH_ITEMS, OPTION_BATCH_TOKENS,
                            OPTION_RESET,      OPTION_VALID_COMMAND, OPTION_MEMORY,      OPTION_EMPTY_BATCHES};
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
  bool good = training_begin(&t, session, &(TrainingWish){.is_training = true, .fills = true});
  if (good && steps) {
    const Batches *batches = batches_load(session, t.graph, t.n_inputs);
    good = batches && run_steps(&t, batches, steps, &written);
  }
  if (good) {
    add_parameters(&written, &t, false);
    write_results(session, &written);
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
  if (given(session, OPTION_DATA) && given(session, OPTION_BATCHES))
    option_error(&session->diag, OPTION_BATCHES, "give --data or --batches, not both");
  if (diag_has_errors(&session->diag) || !outputs_check_files(session)) return;
  if (training_begin(&t, session, &(TrainingWish){.fills = true})) {
    EvalInputs *batches;
    uint32_t n;
    double *results = ARENA_ARRAY(session->arena, double, t.graphs->results.n);
    if (evaluated_batches(&t, &batches, &n) && trainer_evaluate(t.trainer, batches, n, results)) {
      StrBuf text = strbuf_new(session->arena);
      add_results(&written, t.graphs, results);
      print_results(&text, t.graphs, results);
      strbuf_add_char(&text, '\n');
      write_results(session, &written);
      if (!option_given(&session->options, OPTION_OUTPUT)) session_print(&text);
    }
  }
  trainer_free(t.trainer);
}

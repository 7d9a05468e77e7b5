/* tfmc profile: how long each step of a model takes.
 *
 * In: a model, weights, inputs, how often to run; whole runs or steps of decoding. Out: the times as text, as a trace
 * or as a page. Profiling needs compiled code: the interpreter has no steps.
 *
 * A profile of decoding measures the step program of a generative model over as many new tokens as --iterations says;
 * the prompt and --warmup tokens come before. Each row of the prompt gets a token in each step, as in greedy decoding,
 * and no token ends a row. The loop of the runtime generates as it does for `generate`, with a model that sets where
 * times go before it hands each call on to the decoder. Refused: models that do not generate or run whole for each
 * token. */
#include "cli/commands/command_bench.h"

#include <string.h>

#include "cli/cli_model.h"
#include "cli/commands/explored_model.h"
#include "cli/commands/explored_runs.h"
#include "cli/generation_start.h"
#include "engines/engine.h"
#include "engines/native_decoder.h"
#include "measure/bench.h"
#include "measure/profile.h"
#include "tfm/tfm.h"

typedef struct Watched { /* the decoder's model, of which each call is one run of the step program */
  tfm_generate_model model;
  tfm_decoder *decoder;
  uint64_t *nanoseconds;                   /* a row of `n_steps` for each call that counts */
  size_t n_steps, calls, ignored, counted; /* calls so far; those before the first that counts; those that do */
  Progress *progress;
} Watched;

// ---- steps of decoding: the model ----

static void note_call(Watched *w) {
  const size_t call = w->calls++;
  tfm_decoder_profile(w->decoder, call < w->ignored ? NULL : w->nanoseconds + (call - w->ignored) * w->n_steps);
  progress_set(w->progress, call, w->ignored + w->counted);
}

static tfm_status logits_of(void *user, const tfm_step_rows *rows, float *logits, float *logsumexp, tfm_error *error) {
  Watched *w = user;
  note_call(w);
  return w->model.logits(w->model.user, rows, logits, logsumexp, error);
}

static tfm_status best_of(void *user, const tfm_step_rows *rows, const tfm_best_call *wanted, tfm_error *error) {
  Watched *w = user;
  note_call(w);
  return w->model.best(w->model.user, rows, wanted, error);
}

static void share(void *user, void (*work)(void *context, int64_t part, int64_t parts), void *context) {
  const Watched *w = user;
  w->model.share(w->model.user, work, context);
}

static tfm_generate_model watched_model(Watched *w) {
  tfm_generate_model model = w->model;
  model.user = w;
  model.logits = logits_of;
  model.share = w->model.share ? share : NULL;
  model.best = w->model.best ? best_of : NULL;
  return model;
}

// ---- steps of decoding: the work ----

/* The first call computes the prompt, each later one a new token of every row. */
static tfm_generate_options options_of(const Watched *w, int64_t pad) {
  tfm_generate_options options;
  tfm_generate_defaults(&options);
  options.max_new_tokens = (int64_t)(w->ignored + w->counted);
  options.pad_token_id = pad;
  return options;
}

static bool measure_steps(Session *session, const GenerationStart *start, NativeDecoder *decoder, int64_t pad,
                          Watched *w) {
  const tfm_generate_options options = options_of(w, pad);
  tfm_generated generated = {0};
  tfm_error error;
  if (!native_decoder_begin(decoder, start->scorer, start->prompts.n,
                            tfm_decoder_longest_row(&options, start->prompts.width)))
    return false;
  w->model = native_decoder_model(decoder);
  w->progress = progress_begin(session, "measuring");
  const tfm_generate_model model = watched_model(w);
  const tfm_status status = tfm_generate(&model, &start->prompts, &options, &generated, &error);
  progress_end(w->progress);
  tfm_decoder_profile(w->decoder, NULL);
  tfm_generated_free(&generated);
  if (status && !diag_has_errors(&session->diag)) report_runtime_error(&session->diag, &error);
  return status == TFM_OK;
}

static Profile *profile_with(Session *session, const GenerationStart *start, NativeDecoder *decoder, int64_t pad) {
  Arena *arena = session->arena;
  const tfm_program *program = native_decoder_step(decoder);
  const long long rows = start->prompts.n;
  Watched w = {.decoder = native_decoder_runtime(decoder),
               .n_steps = program->n_steps,
               .ignored = 1 + option_count(&session->options, OPTION_WARMUP, 3),
               .counted = option_count(&session->options, OPTION_ITERATIONS, 20)};
  w.nanoseconds = ARENA_ARRAY(arena, uint64_t, w.counted * w.n_steps);
  if (!measure_steps(session, start, decoder, pad, &w)) return NULL;
  return profile_new(arena, program, w.nanoseconds, w.counted, tfm_decoder_threads(w.decoder),
                     arena_printf(arena, "decoding step of %lld row%s", rows, rows == 1 ? "" : "s"));
}

static Profile *refuse_whole_runs(Session *session) {
  option_error(&session->diag, OPTION_DECODE,
               "the model has no incremental form (`tfmc generate --report` says why): a new token is a run of the "
               "whole model, which "
               "`tfmc profile` measures without this option");
  return NULL;
}

static Profile *profile_start(Session *session, GenerationStart *start) {
  GenerationSettings settings;
  if (!generation_settings_of_block(session, start->graph, &settings) || !generation_make_prompts(start, &settings))
    return NULL;
  if (!start->prompts.n) {
    option_error(&session->diag, OPTION_DECODE, "there are no rows to decode");
    return NULL;
  }
  NativeDecoder *decoder = native_decoder_create(engine_settings(session), start->graph, start->weights);
  if (!decoder) return diag_has_errors(&session->diag) ? NULL : refuse_whole_runs(session);
  Profile *profile = profile_with(session, start, decoder, settings.options.pad_token_id);
  native_decoder_destroy(decoder);
  return profile;
}

static Profile *decoding_profile(Session *session) {
  if (!option_is(&session->options, OPTION_ENGINE, "native", "native")) {
    option_error(&session->diag, OPTION_ENGINE, "the reference interpreter has no steps to measure");
    return NULL;
  }
  GenerationStart start;
  Profile *profile = generation_load(session, &start) ? profile_start(session, &start) : NULL;
  generation_close(&start);
  return profile;
}

// ---- profile ----

static bool is_format(const Session *session, const char *format) {
  return option_is(&session->options, OPTION_PROFILE_FORMAT, "table", format);
}

/* `data`: of the same program, with lines and shapes of its steps; NULL: nothing is known of them. */
static void print_profile(Session *session, const Profile *profile, const json_t *data) {
  StrBuf text = strbuf_new(session->arena);
  if (is_format(session, "chrome")) profile_chrome(&text, profile, data);
  else if (is_format(session, "html")) profile_html(&text, profile);
  else profile_table(&text, profile);
  session_write(session, &text);
}

/* What `tfmc explore` would show of the same model. NULL after an error. */
static json_t *data_of_page(Session *session, const ExploreSizes *sizes, bool is_for_page) {
  Session again = *session;
  again.names = map_new(session->arena);
  json_t *data = explored_model(&again, !is_for_page, sizes);
  if (!data) session->diag = again.diag; /* else there are only warnings, which were given already */
  return data;
}

static void print_page(Session *session, json_t *data, Engine *engine, const EvalInputs *inputs) {
  if (!explored_runs_of(session, data, engine, inputs)) return;
  json_object_set_new(data, "view", json_string("steps"));
  StrBuf text = strbuf_new(session->arena);
  explore_page(&text, data, arena_printf(session->arena, "%s - tfmc profile", engine->program->name));
  session_write(session, &text);
}

static void measure(Session *session, Engine *engine, const EvalInputs *inputs, size_t n_outputs, const json_t *data) {
  const tfm_program *program = engine->program;
  Runs runs = runs_of(session, engine, inputs, n_outputs);
  runs.nanoseconds = ARENA_ARRAY(session->arena, uint64_t, runs.iterations * program->n_steps);
  if (!runs_measure(&runs, NULL)) return;
  Profile *times = profile_new(session->arena, program, runs.nanoseconds, runs.iterations,
                               tfm_context_threads(engine->context), "run");
  const int64_t **dims = ARENA_ARRAY(session->arena, const int64_t *, program->n_inputs + 1u);
  for (uint32_t i = 0; i < program->n_inputs; i++)
    for (uint32_t k = 0; k < inputs->n; k++)
      if (strcmp(inputs->names[k], program->inputs[i].name) == 0) dims[i] = inputs->tensors[k].dims;
  profile_add_work(times, program, dims);
  print_profile(session, times, data);
}

/* The page and the trace of a .tfm file have what the compiler knows of it. A library may be of another compiler: of it
 * they have what its program holds. The number of outputs is read first: the graph becomes the engine's. */
static void profile(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  const size_t n_outputs = graph->outputs.n;
  const ExploreSizes sizes = explored_sizes_of_inputs(session, graph, inputs);
  const bool is_page = is_format(session, "html"), has_data = is_page || is_format(session, "chrome");
  Engine *engine = session_engine(session, graph, weights);
  if (!engine) return;
  json_t *data = NULL;
  if (!engine->program)
    option_error(&session->diag, OPTION_ENGINE, "the reference interpreter has no steps to measure");
  else if (!session->library && has_data) data = data_of_page(session, &sizes, is_page);
  if (!diag_has_errors(&session->diag)) {
    if (is_page && data) print_page(session, data, engine, inputs);
    else measure(session, engine, inputs, n_outputs, data);
  }
  json_decref(data);
  engine_destroy(engine);
}

// ---- the command ----

/* Only profile writes to a file; what cannot be written is refused before anything is compiled. */
void command_profile(Session *session) {
  const char *output = option_text(&session->options, OPTION_OUTPUT, NULL);
  const char *read[] = {session->options.files.items[0], option_text(&session->options, OPTION_WEIGHTS, NULL)};
  if (output && !session_check_output(session, output, read, 2)) return;
  if (!option_given(&session->options, OPTION_DECODE)) {
    runs_load_and(session, profile);
    return;
  }
  const Profile *steps = decoding_profile(session);
  if (steps) print_profile(session, steps, NULL);
}

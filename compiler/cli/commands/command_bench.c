/* tfmc bench and tfmc profile: how long one run of a model takes, and each of its steps.
 *
 * In: a model, weights, inputs, how often to run; whole runs or, for a profile, steps of decoding. Out: the times as
 * text, as JSON, as a trace or as a page; measure/ says how they are taken and what they are compared with. Profiling
 * needs compiled code: the interpreter has no steps.
 *
 * A profile of decoding measures the step program of a generative model over as many new tokens as --iterations says;
 * the prompt and --warmup tokens come before. Each row of the prompt gets a token in each step, as in greedy decoding,
 * and no token ends a row. The loop of the runtime generates as it does for `generate`, with a model that sets where
 * times go before it hands each call on to the decoder. Refused: models that do not generate or run whole for each
 * token. */
#include "measure/bench.h"

#include <string.h>

#include "cli/commands/commands.h"
#include "cli/generation_start.h"
#include "cli/cli_inputs.h"
#include "cli/cli_model.h"
#include "engines/engine.h"
#include "engines/native_decoder.h"
#include "measure/profile.h"
#include "tfm/tfm.h"

// ---- the runs that are measured ----

typedef struct Runs {
  Session *session;
  Engine *engine;
  const EvalInputs *inputs;
  Tensor *outputs;
  size_t warmup, iterations;
  uint64_t *nanoseconds; /* of each step: a row for each run that counts; NULL: not wanted */
  Progress *progress;
} Runs;

static Runs runs_of(Session *session, Engine *engine, const EvalInputs *inputs, size_t n_outputs) {
  return (Runs){.session = session,
                .engine = engine,
                .inputs = inputs,
                .outputs = ARENA_ARRAY(session->arena, Tensor, n_outputs),
                .warmup = option_count(&session->options, OPTION_WARMUP, 3),
                .iterations = option_count(&session->options, OPTION_ITERATIONS, 20)};
}

/* Run i of all, the warm-up included; only runs after it get a row of times. */
static bool run_once(void *context, size_t i) {
  Runs *runs = context;
  Engine *engine = runs->engine;
  if (runs->nanoseconds && i >= runs->warmup)
    tfm_context_profile(engine->context, runs->nanoseconds + (i - runs->warmup) * engine->program->n_steps);
  return engine_run(engine, runs->session->arena, runs->inputs, runs->outputs);
}

static void show_progress(void *context, size_t done, size_t all) {
  progress_set(((Runs *)context)->progress, done, all);
}

/* Measures the steps if `nanoseconds` is set, else whole runs, whose times `bench` gets. */
static bool measure(Runs *runs, Bench *bench) {
  const bool is_given = option_given(&runs->session->options, OPTION_WARMUP);
  const Repetition repetition = {runs, run_once, show_progress, runs->warmup, runs->iterations, is_given ? 0 : 0.2};
  runs->progress = progress_begin(runs->session, "measuring");
  bool done = bench ? bench_measure(runs->session->arena, &repetition, bench) : bench_repeat(&repetition, NULL);
  progress_end(runs->progress);
  return done;
}

// ---- bench ----

/* The interpreter is not compared with what the machine can do: nobody would learn anything from a share of a
 * millionth. */
static void compare_with_machine(Session *session, const Engine *engine, const EvalInputs *inputs, Bench *bench) {
  if (!engine->program) return;
  int threads = (int)option_count(&session->options, OPTION_THREADS, (uint64_t)host_info(session->arena).cpus);
  bench_probe(session->arena, engine->program, inputs, threads, bench);
}

/* The work is counted on the graph as it is written, before the engine takes and rewrites it. */
static void bench(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  Bench result = {.model = graph->name, .flops = roofline_flops_written(graph, inputs)};
  size_t n_outputs = graph->outputs.n;
  Engine *engine = session_engine(session, graph, weights);
  if (!engine) return;
  Runs runs = runs_of(session, engine, inputs, n_outputs);
  StrBuf text = strbuf_new(session->arena);
  engine->reuses_outputs = true;
  if (measure(&runs, &result)) {
    compare_with_machine(session, engine, inputs, &result);
    if (option_given(&session->options, OPTION_JSON)) bench_json(&text, &result);
    else bench_text(&text, &result);
  }
  session_print(&text);
  engine_destroy(engine);
}

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

static void print_profile(Session *session, const Profile *profile) {
  const char *format = option_text(&session->options, OPTION_PROFILE_FORMAT, "table");
  StrBuf text = strbuf_new(session->arena);
  if (strcmp(format, "chrome") == 0) profile_chrome(&text, profile);
  else if (strcmp(format, "html") == 0) profile_html(&text, profile);
  else profile_table(&text, profile);
  session_write(session, &text);
}

/* The number of outputs is read first: the graph becomes the engine's. */
static void profile(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  size_t n_outputs = graph->outputs.n;
  Engine *engine = session_engine(session, graph, weights);
  if (!engine) return;
  if (engine->program) {
    Runs runs = runs_of(session, engine, inputs, n_outputs);
    runs.nanoseconds = ARENA_ARRAY(session->arena, uint64_t, runs.iterations * engine->program->n_steps);
    if (measure(&runs, NULL))
      print_profile(session, profile_new(session->arena, engine->program, runs.nanoseconds, runs.iterations,
                                         tfm_context_threads(engine->context), "run"));
  } else {
    option_error(&session->diag, OPTION_ENGINE, "the reference interpreter has no steps to measure");
  }
  engine_destroy(engine);
}

// ---- the commands ----

static void load_and(Session *session, void (*act)(Session *, Graph *, WeightSource *, const EvalInputs *)) {
  Graph *graph = model_load(session);
  WeightSource *weights = graph ? session_weights(session, graph) : NULL;
  const EvalInputs *inputs = weights ? inputs_load(session, graph) : NULL;
  if (inputs) act(session, graph, weights, inputs);
  weight_source_close(weights);
}

void command_bench(Session *session) { load_and(session, bench); }

/* Only profile writes to a file; what cannot be written is refused before anything is compiled. */
void command_profile(Session *session) {
  const char *output = option_text(&session->options, OPTION_OUTPUT, NULL);
  const char *read[] = {session->options.files.items[0], option_text(&session->options, OPTION_WEIGHTS, NULL)};
  if (output && !session_check_output(session, output, read, 2)) return;
  if (!option_given(&session->options, OPTION_DECODE)) {
    load_and(session, profile);
    return;
  }
  const Profile *steps = decoding_profile(session);
  if (steps) print_profile(session, steps);
}

/* tfmc profile: how long each step of a run takes, and so each module. */
#include "measure/profile.h"

#include <string.h>

#include "driver/commands/commands.h"
#include "engines/engine.h"
#include "driver/inputs.h"
#include "driver/passes_options.h"
#include "measure/bench.h"
#include "tfm/tfm.h"

typedef struct Runs {
  Engine *engine;
  const EvalInputs *inputs;
  Tensor *outputs;
  size_t warmup;
  uint64_t *nanoseconds; /* a row per run that counts */
  Progress *progress;
} Runs;

static bool run_once(void *context, size_t i) {
  Runs *runs = context;
  Engine *engine = runs->engine;
  if (i >= runs->warmup)
    tfm_context_profile(engine->context, runs->nanoseconds + (i - runs->warmup) * engine->program->n_steps);
  return engine_run(engine, engine->settings->compile.arena, runs->inputs, runs->outputs);
}

static void show_progress(void *context, size_t done, size_t all) {
  progress_set(((Runs *)context)->progress, done, all);
}

static Profile *measure(Session *session, Engine *engine, const EvalInputs *inputs, size_t n_outputs) {
  Arena *arena = session->arena;
  const size_t warmup = option_count(&session->options, OPTION_WARMUP, 3);
  const size_t iterations = option_count(&session->options, OPTION_ITERATIONS, 20);
  uint64_t *nanoseconds = ARENA_ARRAY(arena, uint64_t, iterations * engine->program->n_steps);
  Runs runs = {engine, inputs, ARENA_ARRAY(arena, Tensor, n_outputs), warmup, nanoseconds,
               progress_begin(session, "measuring")};
  bool done = bench_repeat(&(Repetition){&runs, run_once, show_progress, warmup, iterations}, NULL);
  progress_end(runs.progress);
  if (!done) return NULL;
  return profile_new(arena, engine->program, nanoseconds, iterations, tfm_context_threads(engine->context));
}

static void print(Session *session, const Profile *profile) {
  const char *format = option_text(&session->options, OPTION_PROFILE_FORMAT, "table");
  StrBuf text = strbuf_new(session->arena);
  if (strcmp(format, "chrome") == 0) profile_chrome(&text, profile);
  else if (strcmp(format, "html") == 0) profile_html(&text, profile);
  else profile_table(&text, profile);
  session_write(session, &text);
}

static void profile(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  size_t n_outputs = graph->outputs.n;
  Engine *engine = session_engine(session, graph, weights);
  if (engine && !engine->program)
    option_error(&session->diag, OPTION_ENGINE, "the reference interpreter has no steps to measure");
  const Profile *result = engine && engine->program ? measure(session, engine, inputs, n_outputs) : NULL;
  if (result) print(session, result);
  engine_destroy(engine);
}

void command_profile(Session *session) {
  const char *output = option_text(&session->options, OPTION_OUTPUT, NULL);
  const char *read[] = {session->options.files.items[0], option_text(&session->options, OPTION_WEIGHTS, NULL)};
  if (output && !session_check_output(session, output, read, 2)) return;
  Graph *graph = model_load(session);
  WeightSource *weights = graph ? session_weights(session, graph) : NULL;
  const EvalInputs *inputs = weights ? inputs_load(session, graph) : NULL;
  if (inputs) profile(session, graph, weights, inputs);
  weight_source_close(weights);
}

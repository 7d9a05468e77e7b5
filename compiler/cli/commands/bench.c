/* tfmc bench and tfmc profile: how long one run of a model takes, and each of its steps.
 *
 * In: a model, weights, inputs, how often to run; whole runs or, for a profile, steps of decoding
 * (decoding_profile.h). Out: the times as text, as JSON, as a trace or as a page; measure/
 * says how they are taken and what they are compared with. Profiling needs compiled code: the interpreter has no
 * steps. */
#include "measure/bench.h"

#include <string.h>

#include "cli/commands/commands.h"
#include "cli/decoding_profile.h"
#include "cli/inputs.h"
#include "cli/model.h"
#include "engines/engine.h"
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
  const Repetition repetition = {runs, run_once, show_progress, runs->warmup, runs->iterations};
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

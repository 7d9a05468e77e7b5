/* tfmc bench: how long one run of a model takes.
 *
 * In: a model, weights, inputs, how often to run. Out: the times as text or as JSON; measure/ says how they are taken
 * and what they are compared with. The runs are those that tfmc profile measures too. */
#include "cli/commands/command_bench.h"

#include <string.h>

#include "cli/commands/commands.h"
#include "cli/cli_inputs.h"
#include "cli/cli_model.h"
#include "engines/engine.h"
#include "measure/bench.h"
#include "tfm/tfm.h"

// ---- the runs that are measured ----

Runs runs_of(Session *session, Engine *engine, const EvalInputs *inputs, size_t n_outputs) {
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
bool runs_measure(Runs *runs, Bench *bench) {
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
  if (runs_measure(&runs, &result)) {
    compare_with_machine(session, engine, inputs, &result);
    if (option_given(&session->options, OPTION_JSON)) bench_json(&text, &result);
    else bench_text(&text, &result);
  }
  session_print(&text);
  engine_destroy(engine);
}

// ---- the commands ----

void runs_load_and(Session *session, void (*act)(Session *, Graph *, WeightSource *, const EvalInputs *)) {
  Graph *graph = model_load(session);
  WeightSource *weights = graph ? session_weights(session, graph) : NULL;
  const EvalInputs *inputs = weights ? inputs_load(session, graph) : NULL;
  if (inputs) act(session, graph, weights, inputs);
  weight_source_close(weights);
}

void command_bench(Session *session) { runs_load_and(session, bench); }

/* tfmc bench: how long one run of a model takes. */
#include "measure/bench.h"

#include "driver/commands/commands.h"
#include "engines/engine.h"
#include "driver/host.h"
#include "driver/inputs.h"
#include "driver/passes_options.h"

typedef struct Runs {
  Engine *engine;
  const EvalInputs *inputs;
  Tensor *outputs;
  Progress *progress;
} Runs;

static bool run_once(void *context, size_t i) {
  Runs *runs = context;
  (void)i;
  return engine_run(runs->engine, runs->engine->settings->compile.arena, runs->inputs, runs->outputs);
}

static void show_progress(void *context, size_t done, size_t all) {
  progress_set(((Runs *)context)->progress, done, all);
}

static bool measure(Session *session, Engine *engine, const EvalInputs *inputs, size_t n_outputs, Bench *bench) {
  Runs runs = {engine, inputs, ARENA_ARRAY(session->arena, Tensor, n_outputs), progress_begin(session, "measuring")};
  const Repetition repetition = {.context = &runs,
                                 .run = run_once,
                                 .progress = show_progress,
                                 .warmup = option_count(&session->options, OPTION_WARMUP, 3),
                                 .iterations = option_count(&session->options, OPTION_ITERATIONS, 20)};
  engine->reuses_outputs = true;
  bool done = bench_measure(session->arena, &repetition, bench);
  progress_end(runs.progress);
  return done;
}

/* The interpreter is not compared with what the machine can do. */
static void compare_with_machine(Session *session, const Engine *engine, const EvalInputs *inputs, Bench *bench) {
  if (!engine->program) return;
  int threads = (int)option_count(&session->options, OPTION_THREADS, (uint64_t)host_info(session->arena).cpus);
  bench_probe(session->arena, engine->program, inputs, threads, bench);
}

static void bench(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  Bench result = {.model = graph->name, .flops = roofline_flops_written(graph, inputs)};
  size_t n_outputs = graph->outputs.n;
  Engine *engine = session_engine(session, graph, weights);
  StrBuf text = strbuf_new(session->arena);
  if (engine && measure(session, engine, inputs, n_outputs, &result)) {
    compare_with_machine(session, engine, inputs, &result);
    if (option_given(&session->options, OPTION_JSON)) bench_json(&text, &result);
    else bench_text(&text, &result);
  }
  session_print(&text);
  engine_destroy(engine);
}

void command_bench(Session *session) {
  Graph *graph = model_load(session);
  WeightSource *weights = graph ? session_weights(session, graph) : NULL;
  const EvalInputs *inputs = weights ? inputs_load(session, graph) : NULL;
  if (inputs) bench(session, graph, weights, inputs);
  weight_source_close(weights);
}

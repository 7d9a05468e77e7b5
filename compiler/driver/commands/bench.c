/* tfmc bench: how long one run of a model takes. */
#include <stdlib.h>
#include <time.h>

#include "driver/commands/commands.h"
#include "driver/engine.h"
#include "driver/host.h"
#include "driver/inputs.h"
#include "driver/probe.h"
#include "driver/progress.h"
#include "driver/work.h"
#include "tfm/program.h"

typedef struct Measurement {
  double *seconds; /* sorted */
  size_t n;
  double flops; /* of one run */
  Probe most;   /* what the machine can do; zeroes where that does not apply */
} Measurement;

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static bool measure(Session *session, Engine *engine, const EvalInputs *inputs, size_t n_outputs, Measurement *m) {
  size_t warmup = option_count(&session->options, OPTION_WARMUP, 3);
  m->n = option_count(&session->options, OPTION_ITERATIONS, 20);
  m->seconds = ARENA_ARRAY(session->arena, double, m->n);
  Tensor *outputs = ARENA_ARRAY(session->arena, Tensor, n_outputs);
  Progress *progress = progress_begin(session, "measuring");
  bool done = true;
  for (size_t i = 0; i < warmup + m->n && done; i++) {
    double begin = now();
    done = engine_run(engine, inputs, outputs);
    if (i >= warmup) m->seconds[i - warmup] = now() - begin;
    progress_set(progress, i + 1, warmup + m->n);
  }
  progress_end(progress);
  qsort(m->seconds, m->n, sizeof *m->seconds, compare_doubles);
  return done;
}

/* What the machine can do with the same code and threads; the interpreter is not compared with that. */
static void probe(Session *session, const Engine *engine, Measurement *m) {
  if (!engine->program) return;
  enum { PROBED_BYTES = 256 << 20 };
  int threads = (int)option_count(&session->options, OPTION_THREADS, (uint64_t)host_info(session->arena).cpus);
  const TargetInfo *target = target_find(engine->program->isa);
  if (!target || !probe_measure(target, threads, PROBED_BYTES, &m->most)) m->most = (Probe){0, 0};
}

static void print_text(StrBuf *out, const Measurement *m, const char *model) {
  double median = m->seconds[m->n / 2];
  strbuf_printf(out, "%s: median %.3f ms of %zu runs, from %.3f to %.3f ms\n", model, median * 1e3, m->n,
                m->seconds[0] * 1e3, m->seconds[m->n - 1] * 1e3);
  if (m->flops == 0) return;
  strbuf_printf(out, "%.3f GFLOP a run in matrix products, %.1f GFLOP/s", m->flops * 1e-9, m->flops / median * 1e-9);
  if (m->most.flops > 0)
    strbuf_printf(out, ", %.0f %% of the %.1f that these threads can do", 100 * m->flops / median / m->most.flops,
                  m->most.flops * 1e-9);
  strbuf_add_char(out, '\n');
}

static void print_json(StrBuf *out, const Measurement *m, const char *model) {
  double median = m->seconds[m->n / 2];
  strbuf_add(out, "{\"model\": ");
  strbuf_add_json(out, model);
  strbuf_printf(out, ", \"runs\": %zu, \"median_seconds\": %.9f, \"least_seconds\": %.9f, \"most_seconds\": %.9f", m->n,
                median, m->seconds[0], m->seconds[m->n - 1]);
  strbuf_printf(out, ", \"flop\": %.0f, \"flop_per_second\": %.0f, \"machine_flop_per_second\": %.0f}\n", m->flops,
                m->flops / median, m->most.flops);
}

static void bench(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  Measurement m = {.flops = work_flops(graph, inputs)};
  size_t n_outputs = graph->outputs.n;
  const char *model = graph->name;
  Engine *engine = engine_create(session, graph, weights);
  StrBuf text = strbuf_new(session->arena);
  if (engine && measure(session, engine, inputs, n_outputs, &m)) {
    probe(session, engine, &m);
    if (option_given(&session->options, OPTION_JSON)) print_json(&text, &m, model);
    else print_text(&text, &m, model);
  }
  session_print(&text);
  engine_destroy(engine);
}

void command_bench(Session *session) {
  Graph *graph = model_load(session);
  WeightSource *weights = graph ? weight_source_open(session, graph) : NULL;
  const EvalInputs *inputs = weights ? inputs_load(session, graph) : NULL;
  if (inputs) bench(session, graph, weights, inputs);
  weight_source_close(weights);
}

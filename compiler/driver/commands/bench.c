/* tfmc bench: how long one run of a model takes. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver/commands/commands.h"
#include "driver/engine.h"
#include "driver/host.h"
#include "driver/inputs.h"
#include "driver/probe.h"
#include "driver/progress.h"
#include "driver/roofline.h"
#include "driver/work.h"
#include "tfm/program.h"

typedef struct Measurement {
  double *seconds; /* sorted */
  size_t n;
  double flops; /* of one run, as the model is written */
  Work work;    /* of one run, as it is executed; zeroes where that is not known */
  Probe most;   /* what the machine can do; zeroes where that does not apply */
  double least_possible; /* seconds by the roofline */
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
  engine->reuses_outputs = true;
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

static const int64_t **dims_of_inputs(Arena *arena, const tfm_program *program, const EvalInputs *inputs) {
  const int64_t **dims = ARENA_ARRAY(arena, const int64_t *, program->n_inputs + 1);
  for (uint32_t i = 0; i < program->n_inputs; i++)
    for (uint32_t k = 0; k < inputs->n; k++)
      if (strcmp(program->inputs[i].name, inputs->names[k]) == 0) dims[i] = inputs->tensors[k].dims;
  return dims;
}

/* What the machine can do with the same code and threads, reading as much memory as the model does, over and over as the
 * model does; the interpreter is not compared with that. */
static void probe(Session *session, const Engine *engine, const EvalInputs *inputs, Measurement *m) {
  enum { LEAST_BYTES = 1 << 20, MOST_BYTES = 256 << 20 };
  const tfm_program *program = engine->program;
  if (!program) return;
  int threads = (int)option_count(&session->options, OPTION_THREADS, (uint64_t)host_info(session->arena).cpus);
  const TargetInfo *target = target_find(program->isa);
  const int64_t **dims = dims_of_inputs(session->arena, program, inputs);
  m->work = roofline_work(program, dims);
  double bytes = m->work.weight_bytes;
  bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes > MOST_BYTES ? MOST_BYTES : bytes;
  if (target && probe_measure(target, threads, (size_t)bytes, &m->most))
    m->least_possible = roofline_seconds(program, dims, &m->most);
  else m->most = (Probe){0, 0};
}

static void print_text(StrBuf *out, const Measurement *m, const char *model) {
  double median = m->seconds[m->n / 2];
  strbuf_printf(out, "%s: median %.3f ms of %zu runs, from %.3f to %.3f ms\n", model, median * 1e3, m->n,
                m->seconds[0] * 1e3, m->seconds[m->n - 1] * 1e3);
  if (m->flops > 0) {
    strbuf_printf(out, "%.3f GFLOP a run in matrix products, %.1f GFLOP/s", m->flops * 1e-9, m->flops / median * 1e-9);
    if (m->most.flops > 0)
      strbuf_printf(out, ", %.0f %% of the %.1f that these threads can do", 100 * m->flops / median / m->most.flops,
                    m->most.flops * 1e-9);
    strbuf_add_char(out, '\n');
  }
  if (m->work.weight_bytes > 0 && m->most.bytes > 0)
    strbuf_printf(out, "%.1f MB of weights a run, %.1f GB/s, %.0f %% of the %.1f that these threads can read\n",
                  m->work.weight_bytes * 1e-6, m->work.weight_bytes / median * 1e-9,
                  100 * m->work.weight_bytes / median / m->most.bytes, m->most.bytes * 1e-9);
  if (m->least_possible > 0)
    strbuf_printf(out, "at best %.3f ms, step by step limited by one of the two: %.0f %% of that speed\n",
                  m->least_possible * 1e3, 100 * m->least_possible / median);
}

static void print_json(StrBuf *out, const Measurement *m, const char *model) {
  double median = m->seconds[m->n / 2];
  strbuf_add(out, "{\"model\": ");
  strbuf_add_json(out, model);
  strbuf_printf(out, ", \"runs\": %zu, \"median_seconds\": %.9f, \"least_seconds\": %.9f, \"most_seconds\": %.9f", m->n,
                median, m->seconds[0], m->seconds[m->n - 1]);
  strbuf_printf(out, ", \"flop\": %.0f, \"flop_per_second\": %.0f, \"machine_flop_per_second\": %.0f", m->flops,
                m->flops / median, m->most.flops);
  strbuf_printf(out, ", \"weight_bytes\": %.0f, \"weight_bytes_per_second\": %.0f, \"machine_bytes_per_second\": %.0f",
                m->work.weight_bytes, m->work.weight_bytes / median, m->most.bytes);
  strbuf_printf(out, ", \"roofline_seconds\": %.9f}\n", m->least_possible);
}

static void bench(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  Measurement m = {.flops = work_flops(graph, inputs)};
  size_t n_outputs = graph->outputs.n;
  const char *model = graph->name;
  Engine *engine = engine_create(session, graph, weights);
  StrBuf text = strbuf_new(session->arena);
  if (engine && measure(session, engine, inputs, n_outputs, &m)) {
    probe(session, engine, inputs, &m);
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

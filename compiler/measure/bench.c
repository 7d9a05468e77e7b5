/* In: a function that makes one run. Out: how long runs take, beside what the machine can do, as text or JSON. See
 * bench.h. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "measure/bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- the time of runs ----

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// ---- measuring ----

/* Whether run i is one more that warms up. */
static bool is_warming(const Repetition *repetition, size_t i, double begin) {
  return i < repetition->warmup || (repetition->warmup && now() - begin < repetition->warmup_seconds);
}

/* Runs that warm up are not timed: they fill caches, wake the threads and let the clock of the CPU rise. A large cache
 * keeps what is read again and again only after a while, so their number alone does not say when that is over. Progress
 * is drawn between runs, never inside one. */
bool bench_repeat(const Repetition *repetition, double *seconds) {
  const size_t warmup = repetition->warmup, all = warmup + repetition->iterations;
  const double start = now();
  for (size_t i = 0; is_warming(repetition, i, start); i++) {
    if (!repetition->run(repetition->context, i < warmup ? i : warmup - 1)) return false;
    repetition->progress(repetition->context, i < warmup ? i + 1 : warmup, all);
  }
  for (size_t i = warmup; i < all; i++) {
    const double begin = now();
    if (!repetition->run(repetition->context, i)) return false;
    if (seconds) seconds[i - warmup] = now() - begin;
    repetition->progress(repetition->context, i + 1, all);
  }
  return true;
}

bool bench_measure(Arena *arena, const Repetition *repetition, Bench *bench) {
  bench->n = repetition->iterations;
  bench->seconds = ARENA_ARRAY(arena, double, bench->n);
  bool done = bench_repeat(repetition, bench->seconds);
  qsort(bench->seconds, bench->n, sizeof *bench->seconds, compare_doubles);
  return done;
}

/* The dims of the inputs in the order of the program; NULL for one that was left out. The extra element keeps the
 * array from being empty. */
static const int64_t **dims_of_inputs(Arena *arena, const tfm_program *program, const EvalInputs *inputs) {
  const int64_t **dims = ARENA_ARRAY(arena, const int64_t *, program->n_inputs + 1);
  for (uint32_t i = 0; i < program->n_inputs; i++)
    for (uint32_t k = 0; k < inputs->n; k++)
      if (strcmp(program->inputs[i].name, inputs->names[k]) == 0) dims[i] = inputs->tensors[k].dims;
  return dims;
}

/* The probe reads as many bytes as the program has weights, so a model that fits into a cache is compared with that
 * cache and not with memory, also where a cache of 300 MiB has parts of it. Below 1 MiB the clock would be measured. */
void bench_probe(Arena *arena, const tfm_program *program, const EvalInputs *inputs, int threads, Bench *bench) {
  enum { LEAST_BYTES = 1 << 20, MOST_BYTES = 512 << 20 };
  const TargetInfo *target = target_find(program->isa);
  const int64_t **dims = dims_of_inputs(arena, program, inputs);
  bench->work = roofline_work(program, dims);
  bench->leaves_rows_out = program->n_live > 0;
  double bytes = bench->work.weight_bytes;
  bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes > MOST_BYTES ? MOST_BYTES : bytes;
  if (target && probe_measure(target, threads, (size_t)bytes, &bench->most))
    bench->least_possible = roofline_seconds(program, dims, &bench->most);
  else
    bench->most = (Probe){0};
}

// ---- printing ----

/* Lines without a figure behind them are left out: the reference interpreter has no work and no roofline. */
void bench_text(StrBuf *out, const Bench *bench) {
  const double median = bench->seconds[bench->n / 2], flops = bench->flops / median;
  const Probe most = bench->most;
  strbuf_printf(out, "%s: median %.3f ms of %zu runs, from %.3f to %.3f ms\n", bench->model, median * 1e3, bench->n,
                bench->seconds[0] * 1e3, bench->seconds[bench->n - 1] * 1e3);
  if (bench->flops > 0) {
    strbuf_printf(out, "%.3f GFLOP in matrix products as they are written, %.1f GFLOP/s", bench->flops * 1e-9,
                  flops * 1e-9);
    const double rate = most.flops > 0 ? roofline_rate(&bench->work, &most) : 0;
    if (rate > 0)
      strbuf_printf(out, ", %.0f %% of the %.1f that these threads can do", 100 * flops / rate, rate * 1e-9);
    if (rate > 0 && bench->work.whole > 0)
      strbuf_printf(out, " (%.1f in f32, %.1f in int8)", most.flops * 1e-9, most.whole * 1e-9);
    strbuf_add_char(out, '\n');
  }
  if (bench->work.weight_bytes > 0 && most.bytes > 0)
    strbuf_printf(out, "%.1f MB of weights that products read, %.1f GB/s, "
                       "%.0f %% of the %.1f that these threads can read\n",
                  bench->work.weight_bytes * 1e-6, bench->work.weight_bytes / median * 1e-9,
                  100 * bench->work.weight_bytes / median / most.bytes, most.bytes * 1e-9);
  if (bench->least_possible > 0)
    strbuf_printf(out, "at best %.3f ms, each step bound by one of the two: %.0f %% of that speed\n",
                  bench->least_possible * 1e3, 100 * bench->least_possible / median);
  if (bench->leaves_rows_out && bench->flops > 0)
    strbuf_add(out,
               "arithmetic and what is best count rows that a run leaves out (padding, experts that were not chosen),\n"
               "so the shares may be more than 100 %\n");
}

void bench_json(StrBuf *out, const Bench *bench) {
  double median = bench->seconds[bench->n / 2];
  strbuf_add(out, "{\"model\": ");
  strbuf_add_json(out, bench->model);
  strbuf_printf(out, ", \"runs\": %zu, \"median_seconds\": %.9f", bench->n, median);
  strbuf_printf(out, ", \"least_seconds\": %.9f", bench->seconds[0]);
  strbuf_printf(out, ", \"most_seconds\": %.9f", bench->seconds[bench->n - 1]);
  strbuf_printf(out, ", \"flop\": %.0f, \"flop_per_second\": %.0f, \"machine_flop_per_second\": %.0f", bench->flops,
                bench->flops / median, bench->most.flops);
  strbuf_printf(out, ", \"int8_flop\": %.0f, \"machine_int8_flop_per_second\": %.0f", bench->work.whole,
                bench->most.whole);
  strbuf_printf(out, ", \"weight_bytes\": %.0f, \"weight_bytes_per_second\": %.0f, \"machine_bytes_per_second\": %.0f",
                bench->work.weight_bytes, bench->work.weight_bytes / median, bench->most.bytes);
  strbuf_printf(out, ", \"roofline_seconds\": %.9f", bench->least_possible);
  strbuf_printf(out, ", \"counts_rows_left_out\": %s}\n", bench->leaves_rows_out ? "true" : "false");
}

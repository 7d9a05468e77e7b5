/* The roofline of programs: the work that their steps do against formulas, and the time that a machine would need. Runs
 * that are repeated for it. */
#include <math.h>
#include <time.h>

#include "../support/compiled_graph.h"
#include "measure/bench.h"
#include "measure/roofline.h"

TestSuite(roofline, .init = setup, .fini = teardown);

static const Plan *plan_of(const char *file, const char *model, const Definition *definitions, uint32_t n) {
  const ElaborateOptions options = {.model = model, .definitions = definitions, .n_definitions = n};
  Graph *graph = elaborate_file(arena, &diag, arena_printf(arena, TFM_SOURCE_DIR "/%s", file), &options);
  cr_assert_not_null(graph, "%s", fault());
  return planned(optimized(graph, 2), "x86-64-v3");
}

/* Per layer 4 d^2 + 2 d f weights, and two products of t x t x d. */
Test(roofline, an_encoder_does_what_its_formula_says) {
  const Definition definitions[] = {{"d", "128"}, {"heads", "8"}, {"ffn", "512"}, {"depth", "3"}};
  const Plan *plan = plan_of("bench/models/encoder.tfm", "Encoder", definitions, 4);
  double weights = 3.0 * (4 * 128 * 128 + 2 * 128 * 512);
  for (int64_t batch = 1; batch <= 2; batch++)
    for (int64_t time = 1; time <= 33; time += 16) {
      const int64_t dims[] = {batch, time, 128}, *const inputs[] = {dims};
      Work work = roofline_work(&plan->program, inputs);
      double tokens = (double)(batch * time);
      cr_expect_float_eq(work.flops, tokens * (2 * weights + 3 * 4 * 128.0 * (double)time), 0.5);
      cr_expect_float_eq(work.weight_bytes, 4 * weights, 0.5);
    }
}

Test(roofline, each_step_takes_the_longer_of_the_two) {
  const Definition depth = {"depth", "2"};
  const Plan *plan = plan_of("bench/models/kernels.tfm", "ColdGemm", &depth, 1);
  const int64_t dims[] = {10, 768}, *const inputs[] = {dims};
  Work work = roofline_work(&plan->program, inputs);
  const Probe no_memory = {1e9, 4e9, 1e30}, no_arithmetic = {1e30, 1e30, 1e9}, both = {1e9, 4e9, 1e6};
  double computing = roofline_seconds(&plan->program, inputs, &no_memory);
  double reading = roofline_seconds(&plan->program, inputs, &no_arithmetic);
  cr_expect_float_eq(computing, work.flops / 1e9, 1e-9);
  cr_expect_float_eq(reading, work.weight_bytes / 1e9, 1e-9);
  cr_expect_float_eq(roofline_seconds(&plan->program, inputs, &both), fmax(work.flops / 1e9, work.weight_bytes / 1e6), 1e-9);
}

Test(roofline, a_probe_finds_something) {
  Probe probe;
  ProbeSet *set = probe_open(target_find("x86-64"), 2, 100000);
  cr_assert(set);
  for (int round = 0; round < 3; round++) {
    cr_assert(probe_round(set, &probe));
    cr_expect(probe.flops > 0 && probe.whole > 0 && probe.bytes > 0);
  }
  probe_close(set);
  cr_expect(probe_measure(target_find("x86-64"), 1, 1, &probe));
}

// ---- repeated runs ----

enum { WARMUP = 2, ITERATIONS = 3 };

typedef struct Counted {
  size_t warming, measured, told; /* runs; what progress said last */
  double started, first;          /* seconds: the clock at the beginning, and when the first measured run began */
} Counted;

static double clock_now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static bool count_run(void *context, size_t i) {
  Counted *counted = context;
  if (i < WARMUP) {
    counted->warming++;
    return true;
  }
  if (!counted->measured) counted->first = clock_now();
  cr_expect_eq(i, WARMUP + counted->measured);
  counted->measured++;
  return true;
}

static void note_progress(void *context, size_t done, size_t all) {
  Counted *counted = context;
  cr_expect(done >= counted->told && done <= all);
  counted->told = done;
}

static Counted counted_runs(size_t warmup, double warmup_seconds) {
  Counted counted = {.started = clock_now()};
  double seconds[ITERATIONS] = {-1, -1, -1};
  const Repetition repetition = {&counted, count_run, note_progress, warmup, ITERATIONS, warmup_seconds};
  cr_assert(bench_repeat(&repetition, seconds));
  for (int i = 0; i < ITERATIONS; i++) cr_expect(seconds[i] >= 0);
  cr_expect_eq(counted.measured, ITERATIONS);
  cr_expect_eq(counted.told, warmup + ITERATIONS);
  return counted;
}

/* Runs that take no time are repeated until it has passed; where none warm up, none is made for it. */
Test(roofline, runs_warm_up_for_a_number_and_a_time) {
  const Counted timed = counted_runs(WARMUP, 0.02), plain = counted_runs(WARMUP, 0);
  cr_expect(timed.first - timed.started >= 0.02 && timed.warming > WARMUP);
  cr_expect_eq(plain.warming, WARMUP);
}

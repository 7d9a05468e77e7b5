/* The roofline of programs: the work that their steps do against formulas, and the time that a machine would need. */
#include <math.h>

#include "../support/compiled_graph.h"
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
  const Probe no_memory = {1e9, 1e30}, no_arithmetic = {1e30, 1e9}, both = {1e9, 1e6};
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
    cr_expect(probe.flops > 0 && probe.bytes > 0);
  }
  probe_close(set);
  cr_expect(probe_measure(target_find("x86-64"), 1, 1, &probe));
}

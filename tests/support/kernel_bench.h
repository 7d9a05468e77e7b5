/* Kernels by hand: specs in, callable functions out, without a plan.
 *
 *   KernelBench bench = kernel_bench_new("x86-64-v3");
 *   size_t i = kernel_add(&bench, (KernelSpec){...});
 *   kernels_compile(&bench);
 *   ((tfm_tile_kernel)kernel_get(&bench, i))(...);
 *   kernel_bench_free(&bench); */
#ifndef TFM_TESTS_SUPPORT_KERNEL_BENCH_H
#define TFM_TESTS_SUPPORT_KERNEL_BENCH_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "first_message.h"
#include "jit/jit.h"

typedef struct KernelBench {
  Arena *arena;
  Diag diag;
  Plan plan;
  Jit *jit;
  JitStatistics statistics;
} KernelBench;

static inline KernelBench kernel_bench_new(const char *target) {
  Arena *arena = arena_create();
  KernelBench bench = {.arena = arena, .diag = diag_new(arena)};
  bench.plan = (Plan){.arena = arena, .target = target_find(target)};
  cr_assert(bench.plan.target, "no target %s", target);
  return bench;
}

static inline size_t kernel_add(KernelBench *bench, KernelSpec spec) {
  PlannedKernel kernel = {.spec = spec, .name = arena_printf(bench->arena, "kernel_%zu", bench->plan.kernels.n)};
  vec_push(bench->arena, &bench->plan.kernels, kernel);
  return bench->plan.kernels.n - 1;
}

static inline void kernels_compile(KernelBench *bench) {
  bench->jit = jit_create(bench->arena, &bench->diag, &bench->plan, NULL, &bench->statistics);
  cr_assert(bench->jit, "%s", first_message(&bench->diag));
}

static inline void *kernel_get(const KernelBench *bench, size_t i) { return jit_program(bench->jit)->kernels[i]; }

static inline void kernel_bench_free(KernelBench *bench) {
  jit_destroy(bench->jit);
  arena_destroy(bench->arena);
}

static inline bool host_runs(const char *target) { return !host_lacks(target_find(target)); }

/* Random numbers that are the same in every run. */
static inline uint32_t random_bits(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 32);
}

static inline float random_float(uint64_t *state) { /* in [-1, 1) */
  return (float)((int32_t)random_bits(state) / 2147483648.0);
}

/* Equal bits, or both NaN. */
static inline bool same_float(float a, float b) { return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)); }

#endif

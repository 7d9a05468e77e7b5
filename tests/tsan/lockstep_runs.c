/* Runs of different lengths in contexts beside one another, under the thread sanitizer: with any number of threads each gives
 * the bits that it gives alone. Their product is one where the results stand side by side, and several where they don't. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode/lockstep.h"
#include "walk/walk.h"
#include "hand_models.h"

enum { RUNS = 3, ROUNDS = 60, MOST_THREADS = 4, MOST_TIME = 40, GAP = 5, ROOM = RUNS * (MOST_TIME * LINEAR_N + GAP) };

typedef struct Case {
  int64_t time;
  float x[MOST_TIME * LINEAR_K], r[MOST_TIME * LINEAR_N], expected[MOST_TIME * LINEAR_N];
  int32_t ids[MOST_TIME];
} Case;

static Case cases[RUNS];

static void fill_cases(void) {
  for (uint32_t i = 0; i < RUNS; i++) {
    cases[i].time = (const int64_t[]){7, 1, MOST_TIME}[i];
    hand_fill(cases[i].x, MOST_TIME * LINEAR_K, i + 2);
    hand_fill(cases[i].r, MOST_TIME * LINEAR_N, i + 9);
  }
}

static void set_callers(tfm_context *context, Case *of, float *y) {
  void *const callers[] = {of->x, of->r, of->ids, y};
  memcpy(context->run.callers, callers, sizeof callers);
}

static bool run_alone(tfm_context *context, Case *of) {
  const int64_t symbols[] = {1, of->time};
  if (context_bind_symbols(context, symbols, NULL)) return false;
  set_callers(context, of, of->expected);
  return run_steps(context, NULL) == TFM_OK;
}

/* The results of the runs, `gap` numbers apart, must be the expected ones. */
static bool run_together(tfm_context *first, tfm_context **others, int64_t gap) {
  static float y[ROOM];
  RunPart parts[RUNS] = {{.context = first}};
  const RunCall call = {.parts = parts, .n = RUNS, .lockstep = &lockstep_functions};
  const int64_t symbols[] = {1, cases[0].time};
  bool good = context_bind_symbols(first, symbols, NULL) == TFM_OK, fits;
  float *at = y;
  memset(y, 0, sizeof y);
  lockstep_none(first);
  for (int i = 0; i < RUNS && good; i++) {
    const int64_t other[] = {1, cases[i].time};
    tfm_context *context = i ? others[i - 1] : first;
    if (i) good = lockstep_bind(first, context, other, &fits, NULL) == TFM_OK && fits;
    set_callers(context, &cases[i], at);
    at += cases[i].time * LINEAR_N + gap;
    parts[i].context = context;
  }
  good = good && lockstep_is_one_product(&call, &first->program->steps[1]) == (gap == 0) && walk_run(&call, NULL) == TFM_OK;
  at = y;
  for (int i = 0; i < RUNS && good; at += cases[i].time * LINEAR_N + gap, i++)
    good = memcmp(at, cases[i].expected, (size_t)(cases[i].time * LINEAR_N) * sizeof *at) == 0;
  return good;
}

static bool check(const HandProgram *hand, const float *packed, int32_t threads) {
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  const int64_t most[] = {1, MOST_TIME};
  tfm_context *first = NULL, *others[RUNS - 1] = {NULL};
  bool good = tfm_context_create(&hand->program, packed, &options, &first, NULL) == TFM_OK;
  good = good && context_reserve_symbols(first, most, RUNS, NULL) == TFM_OK;
  for (int i = 0; i < RUNS - 1 && good; i++) good = (others[i] = lockstep_create(first)) != NULL;
  for (int i = 0; i < RUNS && good && threads == 1; i++) good = run_alone(first, &cases[i]);
  for (int round = 0; round < ROUNDS && good; round++) good = run_together(first, others, round % 2 * GAP);
  for (int i = 0; i < RUNS - 1; i++) lockstep_destroy(others[i]);
  tfm_context_destroy(first);
  return good;
}

int main(void) {
  HandProgram hand;
  hand_linear(&hand);
  float *packed = aligned_alloc(64, ((size_t)hand_linear_weight_floats() * sizeof(float) + 63) / 64 * 64);
  if (!packed) return 1;
  hand_fill(packed, hand_linear_weight_floats(), 1);
  fill_cases();
  int failed = 0;
  for (int32_t threads = 1; threads <= MOST_THREADS && !failed; threads++) {
    failed = !check(&hand, packed, threads);
    if (failed) fprintf(stderr, "%d threads: runs together do not give what each gives alone\n", (int)threads);
  }
  free(packed);
  return failed;
}

/* The pool and the runtime under the thread sanitizer: a plain program (no test framework), built with
 * TFM_SANITIZE=thread. Many short runs with changing sizes, contexts used by several threads at once, ends in between. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hand_models.h"

enum { ROUNDS = 40, CALLERS = 3, MOST_ROWS = 40 };

typedef struct Caller {
  const HandProgram *hand;
  const float *packed;
  int number;
  int failed;
} Caller;

/* One context, rounds of other sizes; every run must give what the first of its size gave. */
static int use_context(const Caller *caller, tfm_context *context, float *x, float *r, int32_t *ids, float *y) {
  static const int64_t times[] = {1, 40, 7, 40, 0, 23};
  double sums[sizeof times / sizeof *times] = {0};
  for (int round = 0; round < ROUNDS; round++) {
    size_t which = (size_t)round % (sizeof times / sizeof *times);
    int64_t time = times[which], x_dims[] = {1, time, LINEAR_K}, r_dims[] = {time, LINEAR_N}, ids_dims[] = {1, time};
    const tfm_value inputs[] = {{x, TFM_F32, 3, x_dims}, {r, TFM_F32, 2, r_dims}, {ids, TFM_I32, 2, ids_dims}};
    const tfm_value outputs[] = {{y, TFM_F32, 3, NULL}};
    tfm_error error;
    if (tfm_context_bind(context, inputs, &error) || tfm_context_run(context, inputs, outputs, &error)) {
      fprintf(stderr, "caller %d: %s\n", caller->number, error.message);
      return 1;
    }
    double sum = 1;
    for (int64_t i = 0; i < time * LINEAR_N; i++) sum += (double)y[i];
    if (sums[which] == 0) sums[which] = sum;
    if (sums[which] != sum) {
      fprintf(stderr, "caller %d: other numbers in round %d\n", caller->number, round);
      return 1;
    }
  }
  return 0;
}

static void *call(void *argument) {
  Caller *caller = argument;
  float *x = calloc(MOST_ROWS * LINEAR_K, sizeof *x), *r = calloc(MOST_ROWS * LINEAR_N, sizeof *r);
  float *y = calloc(MOST_ROWS * LINEAR_N, sizeof *y);
  int32_t *ids = calloc(MOST_ROWS, sizeof *ids);
  tfm_context *context = NULL;
  const tfm_context_options options = {.struct_size = sizeof options, .threads = 1 + caller->number};
  caller->failed = !x || !r || !y || !ids ||
                   tfm_context_create(&caller->hand->program, caller->packed, &options, &context, NULL) != TFM_OK;
  if (!caller->failed) {
    hand_fill(x, MOST_ROWS * LINEAR_K, 2);
    caller->failed = use_context(caller, context, x, r, ids, y);
  }
  tfm_context_destroy(context);
  free(x);
  free(r);
  free(y);
  free(ids);
  return NULL;
}

int main(void) {
  HandProgram hand;
  hand_linear(&hand);
  size_t bytes = (size_t)hand_linear_weight_floats() * sizeof(float);
  float *packed = aligned_alloc(64, bytes);
  if (!packed) return 1;
  hand_fill(packed, hand_linear_weight_floats(), 1);
  pthread_t threads[CALLERS];
  Caller callers[CALLERS];
  int failed = 0;
  for (int i = 0; i < CALLERS; i++) {
    callers[i] = (Caller){&hand, packed, i, 0};
    if (pthread_create(&threads[i], NULL, call, &callers[i])) return 1;
  }
  for (int i = 0; i < CALLERS; i++) {
    pthread_join(threads[i], NULL);
    failed |= callers[i].failed;
  }
  free(packed);
  return failed;
}

/* Sixteen threads on one model under the thread sanitizer: a plain program, built with TFM_SANITIZE=thread. Half of the
 * contexts have threads of their own, half share a pool; another thread cancels some of the runs. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hand_library.h"

enum { CALLERS = 16, ROUNDS = 30, BATCH = 2, TIME = 24, ROWS = BATCH * TIME };

typedef struct Shared {
  tfm_model *model;
  tfm_pool *pool;
  const float *x, *r, *expected;
  const int32_t *ids;
} Shared;

typedef struct Caller {
  const Shared *shared;
  pthread_t thread;
  tfm_context *context;
  atomic_bool done;
  int number, failed, cancelled;
} Caller;

static LinearArgs args_of(const Shared *shared, int64_t batch, int64_t time, float *y) {
  return (LinearArgs){sizeof(LinearArgs), batch, time, shared->x, shared->r, shared->ids, y, ROWS * LINEAR_N};
}

static void *call(void *argument) {
  Caller *caller = argument;
  float *y = calloc(ROWS * LINEAR_N, sizeof *y);
  for (int round = 0; y && round < ROUNDS && !caller->failed; round++) {
    const LinearArgs other = args_of(caller->shared, 1, round % TIME, y), args = args_of(caller->shared, BATCH, TIME, y);
    tfm_status first = tfm_library_forward(caller->context, &other, NULL);
    tfm_status second = tfm_library_forward(caller->context, &args, NULL);
    caller->cancelled += second == TFM_E_CANCELLED;
    caller->failed = (first && first != TFM_E_CANCELLED) || (second && second != TFM_E_CANCELLED) ||
                     (!second && memcmp(y, caller->shared->expected, sizeof(float) * ROWS * LINEAR_N) != 0);
  }
  free(y);
  atomic_store(&caller->done, true);
  return NULL;
}

static int run_callers(const Shared *shared, Caller *callers) {
  int failed = 0;
  for (int i = 0; i < CALLERS; i++) {
    const tfm_context_options options = {.struct_size = sizeof options, .threads = 1 + i % 3,
                                         .pool = i % 2 ? shared->pool : NULL};
    callers[i].shared = shared;
    callers[i].number = i;
    if (tfm_library_context_new(shared->model, &options, &callers[i].context, NULL)) return 1;
  }
  for (int i = 0; i < CALLERS; i++)
    if (pthread_create(&callers[i].thread, NULL, call, &callers[i])) return 1;
  for (int i = 0; i < CALLERS; i += 5) {
    while (!atomic_load(&callers[i].done)) tfm_context_cancel(callers[i].context);
  }
  for (int i = 0; i < CALLERS; i++) {
    pthread_join(callers[i].thread, NULL);
    tfm_context_destroy(callers[i].context);
    failed += callers[i].failed;
  }
  return failed;
}

int main(void) {
  static HandLibrary hand;
  static Caller callers[CALLERS];
  static float x[ROWS * LINEAR_K], r[TIME * LINEAR_N], expected[ROWS * LINEAR_N];
  static int32_t ids[ROWS];
  static _Alignas(64) float packed[24 * LINEAR_K];
  hand_fill(packed, hand_linear_weight_floats(), 1);
  hand_fill(x, ROWS * LINEAR_K, 2);
  hand_fill(r, TIME * LINEAR_N, 3);
  hand_library(&hand, packed);
  Shared shared = {.x = x, .r = r, .ids = ids, .expected = expected};
  if (tfm_library_open(&hand.library, NULL, &shared.model, NULL) || tfm_pool_create(3, &shared.pool, NULL)) return 1;
  tfm_context *context;
  const LinearArgs args = args_of(&shared, BATCH, TIME, expected);
  if (tfm_library_context_new(shared.model, NULL, &context, NULL) || tfm_library_forward(context, &args, NULL)) return 1;
  tfm_context_destroy(context);
  int failed = run_callers(&shared, callers);
  if (failed) fprintf(stderr, "%d callers got other numbers or errors\n", failed);
  tfm_pool_destroy(shared.pool);
  tfm_model_close(shared.model);
  return failed != 0;
}

/* A program of one step under the thread sanitizer: it has no barrier before its end, so a thread that wakes up late may
 * begin when others have finished. It must not do their work again. Many runs with more threads than CPUs; all must give the
 * bits that one thread gives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hand_models.h"

enum { THREADS = 9, RUNS = 200, TIME = 20, KEYS = 600, ROWS = ATTENTION_HEADS * TIME, NUMBERS = ROWS * ATTENTION_E };

static float q[ROWS * HAND_H], k[ATTENTION_HEADS * KEYS * HAND_H], v[ATTENTION_HEADS * KEYS * ATTENTION_E];
static float expected[NUMBERS], y[NUMBERS];
static uint8_t padding[KEYS];

static tfm_status run(const HandProgram *hand, int32_t threads, int runs, tfm_error *error) {
  static const int64_t q_dims[] = {1, ATTENTION_HEADS, TIME, HAND_H}, k_dims[] = {1, ATTENTION_HEADS, KEYS, HAND_H},
                       v_dims[] = {1, ATTENTION_HEADS, KEYS, ATTENTION_E}, padding_dims[] = {1, KEYS};
  const tfm_value inputs[] = {
      {q, TFM_F32, 4, q_dims}, {k, TFM_F32, 4, k_dims}, {v, TFM_F32, 4, v_dims}, {padding, TFM_BOOL, 2, padding_dims}};
  const tfm_value outputs[] = {{threads == 1 ? expected : y, TFM_F32, 4, NULL}, {NULL, TFM_F32, 4, NULL}};
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  tfm_context *context = NULL;
  tfm_status status = tfm_context_create(&hand->program, NULL, &options, &context, error);
  if (!status) status = tfm_context_bind(context, inputs, error);
  for (int i = 0; i < runs && !status; i++) {
    status = tfm_context_run(context, inputs, outputs, error);
    if (!status && memcmp(outputs[0].data, expected, sizeof expected) != 0) {
      snprintf(error->message, sizeof error->message, "run %d of %d threads gives other bits", i, (int)threads);
      status = TFM_E_INPUT;
    }
  }
  tfm_context_destroy(context);
  return status;
}

int main(void) {
  HandProgram hand;
  tfm_error error;
  hand_attention(&hand, 0);
  hand_fill(q, ROWS * HAND_H, 5);
  hand_fill(k, ATTENTION_HEADS * KEYS * HAND_H, 6);
  hand_fill(v, ATTENTION_HEADS * KEYS * ATTENTION_E, 7);
  if (run(&hand, 1, 1, &error) == TFM_OK && run(&hand, THREADS, RUNS, &error) == TFM_OK) return 0;
  fprintf(stderr, "%s\n", error.message);
  return 1;
}

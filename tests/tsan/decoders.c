/* Eight threads write with one model under the thread sanitizer, each with a decoder of its own; some have threads of
 * their own, the others share a pool; two are cancelled now and then, and do again what did not happen. All must get the
 * same scores. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hand_decoding.h"
#include "tfm/decode.h"

enum { CALLERS = 8, ITEMS = 2, SOURCE = 20, ROWS = 6, START = 18, ROUNDS = 25 };

typedef struct Shared {
  HandDecoding hand;
  int32_t source[ITEMS * SOURCE], tokens[START + ROUNDS + ROWS];
  uint8_t masked[ITEMS * SOURCE];
  tfm_pool *pool;
} Shared;

typedef struct Caller {
  Shared *shared;
  pthread_t thread;
  int number, failed, cancelled;
  _Atomic(tfm_decoder *) decoder;
  float scores[ROUNDS][ROWS * WRITER_VOCAB];
} Caller;

static tfm_status step(Caller *caller, tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, float *scores) {
  tfm_status status;
  while ((status = tfm_decoder_step(decoder, n, rows, 1, scores, NULL, NULL)) == TFM_E_CANCELLED) caller->cancelled++;
  return status;
}

static tfm_status write_rows(Caller *caller, tfm_decoder *decoder) {
  static const int64_t dims[] = {ITEMS, SOURCE}, parents[ROWS] = {0, 1, 1, 0, 1, 0};
  const Shared *shared = caller->shared;
  const tfm_value inputs[] = {{(void *)shared->source, TFM_I32, 2, dims}, {(void *)shared->masked, TFM_BOOL, 2, dims}};
  tfm_decoder_row rows[ROWS];
  tfm_status status;
  while ((status = tfm_decoder_begin(decoder, inputs, ROWS, START + ROUNDS, NULL)) == TFM_E_CANCELLED) caller->cancelled++;
  for (int i = 0; i < ITEMS && !status; i++) {
    rows[i] = (tfm_decoder_row){i, shared->tokens, START, 0};
    status = tfm_decoder_join(decoder, i, &rows[i].row, NULL);
  }
  if (!status) status = step(caller, decoder, ITEMS, rows, caller->scores[0]);
  for (int round = 0; round < ROUNDS && !status; round++) {
    if (round % 4 == 0) status = tfm_decoder_reorder(decoder, ROWS, parents, NULL);
    int n = round % 4 == 1 ? 3 : ROWS; /* the others get shorter: from then on there are two runs together */
    for (int i = 0; i < n; i++) rows[i] = (tfm_decoder_row){i, shared->tokens + START + round + i % 3, 1, 0};
    if (!status) status = step(caller, decoder, n, rows, caller->scores[round]);
  }
  return status;
}

static void *call(void *argument) {
  Caller *caller = argument;
  const tfm_context_options options = {.struct_size = sizeof options, .threads = 1 + caller->number % 3,
                                       .pool = caller->number % 2 ? caller->shared->pool : NULL};
  tfm_decoder *decoder = NULL;
  caller->failed = tfm_decoder_create(&caller->shared->hand.decoding, NULL, NULL, &options, &decoder, NULL) != TFM_OK;
  atomic_store(&caller->decoder, decoder);
  for (int i = 0; i < 2 && !caller->failed; i++) caller->failed = write_rows(caller, decoder) != TFM_OK;
  return NULL; /* the decoder ends when nobody cancels it any more */
}

/* So often and no more: who is cancelled all the time gets nowhere. */
static void cancel_some(Caller *callers) {
  enum { TIMES = 400 };
  const struct timespec pause = {.tv_nsec = 50000};
  for (int i = 0; i < TIMES; i++) {
    for (int k = 0; k < CALLERS; k += 5) tfm_decoder_cancel(atomic_load(&callers[k].decoder));
    nanosleep(&pause, NULL);
  }
}

int main(void) {
  static Shared shared;
  static Caller callers[CALLERS];
  hand_writer(&shared.hand);
  for (int i = 0; i < ITEMS * SOURCE; i++) shared.source[i] = i % 30;
  for (int i = 0; i < START + ROUNDS + ROWS; i++) shared.tokens[i] = i * 7 % 31;
  if (tfm_pool_create(3, &shared.pool, NULL)) return 1;
  for (int i = 0; i < CALLERS; i++) {
    callers[i].shared = &shared;
    callers[i].number = i;
    if (pthread_create(&callers[i].thread, NULL, call, &callers[i])) return 1;
  }
  cancel_some(callers);
  int failed = 0, cancelled = 0;
  for (int i = 0; i < CALLERS; i++) {
    pthread_join(callers[i].thread, NULL);
    tfm_decoder_destroy(callers[i].decoder);
    cancelled += callers[i].cancelled;
    failed += callers[i].failed || memcmp(callers[i].scores, callers[0].scores, sizeof callers[0].scores) != 0;
  }
  tfm_pool_destroy(shared.pool);
  printf("%d runs were cancelled\n", cancelled);
  if (failed) fprintf(stderr, "%d callers got other scores or errors\n", failed);
  return failed != 0;
}

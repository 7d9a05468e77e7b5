/* Six threads write many rows at once under the thread sanitizer: each with a decoder of its own, some of which share a
 * pool, with choosers for all threads of it; guesses are wrong and right, calls are cancelled now and then and made again.
 * All must choose the same tokens. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "hand_decoding.h"
#include "tfm/write.h"

enum { CALLERS = 6, SOURCE = 12, ROWS = 5, START = 6, LENGTH = 50, GUESSES = 2, THREADS = 3 };

typedef struct Shared {
  HandDecoding hand;
  int32_t source[SOURCE];
  uint8_t masked[SOURCE];
  tfm_pool *pool;
} Shared;

typedef struct Row {
  int32_t tokens[LENGTH + GUESSES];
  int64_t length, written;
  tfm_stream stream;
  tfm_generate_options options;
  tfm_choice chosen[1 + GUESSES];
} Row;

typedef struct Caller {
  Shared *shared;
  pthread_t thread;
  int number, failed, cancelled;
  _Atomic(tfm_decoder *) decoder;
  tfm_chooser *choosers[THREADS];
  Row rows[ROWS];
} Caller;

static const int64_t never[] = {WRITER_VOCAB - 1}; /* its values are NaN */

/* Repeats what stands in front of the row's end: sometimes that is right. */
static tfm_write_row next_of(Row *row, int64_t number, int64_t guesses) {
  if (guesses > LENGTH - 1 - row->length) guesses = LENGTH - 1 - row->length;
  for (int64_t i = 0; i < guesses; i++) row->tokens[row->length + i] = row->tokens[row->length - 2 + i];
  const int64_t fresh = row->length - row->written + guesses;
  return (tfm_write_row){.part = {number, row->tokens + row->written, fresh, 0}, .n_guesses = guesses,
                         .choice = {.options = &row->options, .tokens = row->tokens, .length = row->length + guesses,
                                    .start = START, .limit = LENGTH, .stream = &row->stream, .n_top = -1},
                         .chosen = row->chosen};
}

static tfm_status write_rows(Caller *caller, tfm_decoder *decoder) {
  for (bool goes_on = true; goes_on;) {
    tfm_write_row rows[ROWS];
    int64_t n = 0;
    for (int i = 0; i < ROWS; i++)
      if (caller->rows[i].length < LENGTH) {
        rows[n] = next_of(&caller->rows[i], i, (caller->number + i) % (GUESSES + 1));
        n++;
      }
    const tfm_status status = tfm_decoder_write(decoder, caller->choosers, n, rows, NULL);
    if (status == TFM_E_CANCELLED) caller->cancelled++;
    if (status && status != TFM_E_CANCELLED) return status;
    for (int64_t i = 0; i < n && !status; i++) {
      Row *row = &caller->rows[rows[i].part.row];
      if (rows[i].status) return rows[i].status;
      for (int64_t k = 0; k < rows[i].n_chosen; k++) row->tokens[row->length++] = row->chosen[k].token;
      row->written = row->length - 1;
    }
    goes_on = n > 0;
  }
  return TFM_OK;
}

static tfm_status begin(Caller *caller, tfm_decoder *decoder) {
  static const int64_t dims[] = {1, SOURCE};
  const Shared *shared = caller->shared;
  const tfm_value inputs[] = {{(void *)shared->source, TFM_I32, 2, dims}, {(void *)shared->masked, TFM_BOOL, 2, dims}};
  tfm_status status;
  while ((status = tfm_decoder_begin(decoder, inputs, ROWS, LENGTH, NULL)) == TFM_E_CANCELLED) caller->cancelled++;
  for (int64_t i = 0, row; i < ROWS && !status; i++) {
    caller->rows[i] = (Row){.length = START, .stream = tfm_stream_begin(9, (uint64_t)i)};
    tfm_generate_defaults(&caller->rows[i].options);
    caller->rows[i].options.do_sample = i % 2;
    caller->rows[i].options.suppress_tokens = (tfm_token_list){never, 1};
    for (int k = 0; k < START; k++) caller->rows[i].tokens[k] = (int32_t)(i + k) * 5 % 31;
    status = tfm_decoder_join(decoder, 0, &row, NULL);
  }
  return status;
}

static void *call(void *argument) {
  Caller *caller = argument;
  const tfm_context_options options = {.struct_size = sizeof options, .threads = 1 + caller->number % THREADS,
                                       .pool = caller->number % 2 ? caller->shared->pool : NULL};
  tfm_decoder *decoder = NULL;
  tfm_status status = tfm_decoder_create(&caller->shared->hand.decoding, NULL, NULL, &options, &decoder, NULL);
  for (int i = 0; i < THREADS && !status; i++) status = tfm_chooser_create(WRITER_VOCAB, &caller->choosers[i], NULL);
  atomic_store(&caller->decoder, decoder);
  if (!status) status = begin(caller, decoder);
  if (!status) status = write_rows(caller, decoder);
  caller->failed = status != TFM_OK;
  return NULL; /* the decoder ends when nobody cancels it any more */
}

static void cancel_some(Caller *callers) {
  const struct timespec pause = {.tv_nsec = 100000};
  for (int i = 0; i < 200; i++) {
    tfm_decoder_cancel(atomic_load(&callers[i % 2 * 3].decoder));
    nanosleep(&pause, NULL);
  }
}

int main(void) {
  static Shared shared;
  static Caller callers[CALLERS];
  hand_writer(&shared.hand);
  for (int i = 0; i < SOURCE; i++) shared.source[i] = i % 30;
  if (tfm_pool_create(THREADS, &shared.pool, NULL)) return 1;
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
    for (int k = 0; k < THREADS; k++) tfm_chooser_destroy(callers[i].choosers[k]);
    cancelled += callers[i].cancelled;
    for (int k = 0; k < ROWS; k++)
      callers[i].failed |= memcmp(callers[i].rows[k].tokens, callers[0].rows[k].tokens, LENGTH * sizeof(int32_t)) != 0;
    failed += callers[i].failed;
  }
  tfm_pool_destroy(shared.pool);
  printf("%d calls were cancelled\n", cancelled);
  if (failed) fprintf(stderr, "%d callers chose other tokens or got errors\n", failed);
  return failed != 0;
}

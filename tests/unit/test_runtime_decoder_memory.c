/* The decoder and memory: after it has begun nothing is allocated, whatever its rows do; a beginning that gets no memory
 * fails and can be repeated. Linked with --wrap for the functions that allocate and map. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "counted_allocations.h"
#include "hand_decoding.h"
#include "tfm/decode.h"
#include "tfm/write.h"

/* --- Mapping under watch ------------------------------------------------------------------------------------------- */

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
  if (!allocation_fails()) return __real_mmap(at, size, protection, flags, fd, offset);
  errno = ENOMEM;
  return MAP_FAILED;
}

/* --- The model ----------------------------------------------------------------------------------------------------- */

enum { ITEMS = 3, SOURCE = 25, ROWS = 9, LENGTH = 200 };

static HandDecoding hand;
static int32_t source[ITEMS * SOURCE], tokens[LENGTH];
static uint8_t masked[ITEMS * SOURCE];
static float scores[ROWS * 8 * WRITER_VOCAB], logsumexp[ROWS * 8];

static tfm_decoder *decoder_new(const tfm_allocator *allocator) {
  tfm_decoder *decoder = NULL;
  hand_writer(&hand);
  for (int i = 0; i < ITEMS * SOURCE; i++) source[i] = i % 29;
  for (int i = 0; i < LENGTH; i++) tokens[i] = i * 3 % 30;
  tfm_context_options options = {.struct_size = sizeof options, .threads = 2};
  if (allocator) options.allocator = *allocator;
  tfm_decoder_create(&hand.decoding, NULL, NULL, &options, &decoder, NULL);
  return decoder;
}

static tfm_status begin(tfm_decoder *decoder, int64_t rows, int64_t length) {
  static const int64_t dims[] = {ITEMS, SOURCE};
  const tfm_value inputs[] = {{source, TFM_I32, 2, dims}, {masked, TFM_BOOL, 2, dims}};
  return tfm_decoder_begin(decoder, inputs, rows, length, NULL);
}

/* Rows of several lengths, with and without company; copies; rows that leave; all of it until there is no room left. */
static tfm_status use(tfm_decoder *decoder) {
  static const int64_t parents[ROWS] = {0, 2, 2, 2, 1, 0, 0, 2, 2};
  tfm_decoder_row rows[ROWS];
  int64_t row;
  tfm_status status = TFM_OK;
  for (int64_t i = 0; i < 3 && !status; i++) {
    status = tfm_decoder_join(decoder, i, &row, NULL);
    rows[i] = (tfm_decoder_row){row, tokens, i == 1 ? 70 : 90, 0};
  }
  if (!status) status = tfm_decoder_step(decoder, 3, rows, 8, scores, logsumexp, NULL);
  for (int64_t at = 90; at < LENGTH && !status; at++) {
    if (at % 5 == 0) status = tfm_decoder_reorder(decoder, ROWS, parents, NULL);
    if (!status && at % 31 == 0) status = tfm_decoder_leave(decoder, 4, NULL);
    if (!status && at % 31 == 0) status = tfm_decoder_join(decoder, 2, &row, NULL);
    if (!status && at == 110) status = tfm_decoder_leave(decoder, ROWS - 1, NULL);
    if (!status && at == 110) status = tfm_decoder_fork(decoder, 3, &row, NULL);
    int64_t n = at < 95 && at >= 90 ? ROWS : ROWS - 1;
    for (int64_t i = 0; i < n; i++) rows[i] = (tfm_decoder_row){i, tokens + at, 1, 0};
    if (!status) status = tfm_decoder_step(decoder, n, rows, 1, scores, at % 2 ? logsumexp : NULL, NULL);
    if (!status && at % 7 == 0) status = tfm_decoder_truncate(decoder, 3, tfm_decoder_length(decoder, 3) - 1, NULL);
  }
  return status;
}

Test(runtime_decoder_memory, nothing_is_allocated_after_begin) {
  tfm_decoder *decoder = decoder_new(NULL);
  for (int round = 0; round < 2; round++) {
    cr_assert_eq(begin(decoder, ROWS, LENGTH), TFM_OK);
    long before = atomic_load(&n_allocations);
    cr_assert_eq(use(decoder), TFM_OK);
    cr_expect_eq(atomic_load(&n_allocations), before);
  }
  long before = atomic_load(&n_allocations);
  cr_assert_eq(begin(decoder, ROWS, LENGTH - 20), TFM_OK);
  cr_expect_leq(atomic_load(&n_allocations) - before, 1, "shorter rows need no more room, but for what the sources give");
  tfm_decoder_destroy(decoder);
}

Test(runtime_decoder_memory, a_beginning_without_memory_fails_and_can_be_repeated) {
  long before = atomic_load(&n_allocations);
  tfm_decoder *decoder = decoder_new(NULL);
  long made = atomic_load(&n_allocations) - before;
  begin(decoder, ROWS, LENGTH);
  long all = atomic_load(&n_allocations) - before;
  tfm_decoder_destroy(decoder);
  int n_failed = 0;
  for (long i = 0; i < all; i++) {
    atomic_store(&failing, atomic_load(&n_allocations) + i);
    decoder = decoder_new(NULL);
    tfm_status status = decoder ? begin(decoder, ROWS, LENGTH) : TFM_E_NOMEM;
    atomic_store(&failing, -1);
    n_failed += status == TFM_E_NOMEM;
    if (status) cr_expect_eq(status, TFM_E_NOMEM, "allocation %ld", i);
    if (i < made || !decoder) {
      tfm_decoder_destroy(decoder);
      continue;
    }
    if (status) {
      int64_t row;
      cr_expect_eq(tfm_decoder_join(decoder, 0, &row, NULL), TFM_E_USAGE, "it has not begun");
      cr_expect_eq(begin(decoder, ROWS, LENGTH), TFM_OK);
    }
    cr_expect_eq(use(decoder), TFM_OK);
    tfm_decoder_destroy(decoder);
  }
  cr_expect_gt(n_failed, 5);
}

/* --- What a server does ------------------------------------------------------------------------------------------- */

enum { WRITTEN = 40, THREADS = 2 };

typedef struct Serving {
  tfm_decoder *decoder;
  tfm_chooser *choosers[THREADS];
  int32_t text[ITEMS][WRITTEN + 4];
  int n_failed;
} Serving;

/* Whether a call ended well; one that got no memory may be made again, and then does. */
static bool again(Serving *serving, tfm_status status) {
  if (!status) return false;
  cr_assert_eq(status, TFM_E_NOMEM);
  serving->n_failed++;
  return true;
}

static tfm_status open_limits(tfm_decoder *decoder) {
  int64_t sizes[8] = {0};
  for (uint32_t i = 0; i < hand.decoding.encoder->n_symbols; i++) sizes[i] = SOURCE;
  const tfm_decoder_limits limits = {.struct_size = sizeof limits, .rows = ITEMS, .length = WRITTEN + 4,
                                     .items = ITEMS, .source_sizes = sizes};
  return tfm_decoder_open(decoder, &limits, NULL);
}

/* Rows of three sources, the later ones added while the others write; each step guesses two tokens, wrongly or rightly.
 * step_kept is small, so that a step has to make room for its logits. */
static void serve(Serving *serving) {
  static const int64_t dims[] = {1, SOURCE};
  int64_t row[ITEMS], lengths[ITEMS], item;
  for (int i = 0; i < THREADS; i++)
    while (again(serving, tfm_chooser_create(WRITER_VOCAB, &serving->choosers[i], NULL))) continue;
  while (!(serving->decoder = decoder_new(NULL))) serving->n_failed++;
  while (again(serving, open_limits(serving->decoder))) continue;
  tfm_generate_options options;
  tfm_generate_defaults(&options);
  for (int begun = 0, step = 0; step < 3 * WRITTEN; step++) {
    if (begun < ITEMS && step % 5 == 0) {
      const tfm_value inputs[] = {{source + begun * SOURCE, TFM_I32, 2, dims}, {masked, TFM_BOOL, 2, dims}};
      while (again(serving, tfm_decoder_add_source(serving->decoder, inputs, NULL, &item, NULL))) continue;
      while (again(serving, tfm_decoder_join(serving->decoder, item, &row[begun], NULL))) continue;
      serving->text[begun][0] = begun;
      lengths[begun++] = 1;
    }
    tfm_write_row rows[ITEMS];
    tfm_choice chosen[ITEMS][3];
    int64_t who[ITEMS], n = 0;
    for (int i = 0; i < begun; i++) {
      if (lengths[i] >= WRITTEN) continue;
      int32_t *text = serving->text[i];
      text[lengths[i]] = step % 3, text[lengths[i] + 1] = 1;
      rows[n] = (tfm_write_row){.part = {row[i], text + lengths[i] - 1, 3, 0}, .n_guesses = 2, .chosen = chosen[n],
                                .choice = {.options = &options, .tokens = text, .length = lengths[i] + 2, .start = 1,
                                           .limit = WRITTEN + 4, .n_top = -1}};
      who[n++] = i;
    }
    if (!n) continue;
    while (again(serving, tfm_decoder_write(serving->decoder, serving->choosers, n, rows, NULL))) continue;
    for (int64_t k = 0; k < n; k++) {
      cr_assert_eq(rows[k].status, TFM_OK);
      for (int64_t c = 0; c < rows[k].n_chosen; c++)
        serving->text[who[k]][lengths[who[k]] + c] = chosen[k][c].token;
      lengths[who[k]] += rows[k].n_chosen;
    }
  }
  for (int i = 0; i < ITEMS; i++) memset(serving->text[i] + WRITTEN, 0, 4 * sizeof **serving->text);
  for (int i = 0; i < THREADS; i++) tfm_chooser_destroy(serving->choosers[i]);
  tfm_decoder_destroy(serving->decoder);
}

/* Each allocation fails once, and with all others before it well: the call says so, can be made again, and the rows get
 * the same tokens. */
Test(runtime_decoder_memory, S19_a_call_of_a_server_without_memory_can_be_repeated) {
  static Serving wanted, found;
  const long before = atomic_load(&n_allocations);
  serve(&wanted);
  const long all = atomic_load(&n_allocations) - before;
  cr_assert_eq(wanted.n_failed, 0);
  int n_failed = 0;
  for (long i = 0; i < all; i++) {
    found = (Serving){0};
    atomic_store(&failing, atomic_load(&n_allocations) + i);
    serve(&found);
    atomic_store(&failing, -1);
    cr_assert_leq(found.n_failed, 1, "allocation %ld", i);
    n_failed += found.n_failed;
    cr_assert_arr_eq(found.text, wanted.text, sizeof wanted.text, "allocation %ld", i);
  }
  cr_expect_gt(n_failed, all / 2, "%d of %ld", n_failed, all);
  cr_expect_gt(all, 15);
}

/* --- Functions of the caller --------------------------------------------------------------------------------------- */

typedef struct Watched {
  long live, bytes;
} Watched;

static void *watched_allocate(void *user, size_t bytes, size_t alignment) {
  Watched *watched = user;
  watched->live++;
  watched->bytes += (long)bytes;
  return __real_aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void watched_release(void *user, void *memory, size_t bytes) {
  Watched *watched = user;
  watched->live--;
  watched->bytes -= (long)bytes;
  free(memory);
}

Test(runtime_decoder_memory, all_of_it_comes_from_the_caller) {
  Watched watched = {0};
  const tfm_allocator allocator = {watched_allocate, watched_release, &watched};
  tfm_decoder *decoder = decoder_new(&allocator);
  cr_assert_eq(begin(decoder, ROWS, LENGTH), TFM_OK);
  cr_expect_geq(watched.bytes, (long)tfm_decoder_bytes(decoder));
  cr_expect_geq((long)tfm_decoder_bytes(decoder), ROWS * LENGTH * (24 + 16) * 4);
  long live = watched.live;
  cr_assert_eq(use(decoder), TFM_OK);
  cr_expect_eq(watched.live, live);
  tfm_decoder_destroy(decoder);
  cr_expect_eq(watched.live, 0);
  cr_expect_eq(watched.bytes, 0);
}

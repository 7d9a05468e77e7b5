/* Rows and steps: rows join, leave, copy each other and are cut short; a step gives them new tokens.
 *
 * A step checks the call, makes room in the pages of its rows, cuts the call into runs of the step program, and gives
 * the rows their new tokens only when all runs have succeeded. The rows of a run have the same number of positions,
 * the same number of new tokens, and sources of the same sizes. Short runs are executed in lockstep; the long
 * beginnings of rows are cut into chunks, each a run of its own.
 *
 * Refused: rows and items that do not exist, more rows than there is room for, a row that is named twice, rows that
 * would become longer than tfm_decoder_begin allowed. A step that fails leaves all rows as they were. */
#include <string.h>

#include "decode/decoder.h"
#include "walk/walk.h"

// ---- rows ----

static tfm_status check_begun(const tfm_decoder *decoder, tfm_error *error) {
  if (!decoder) return tfm_refuse(error, TFM_E_USAGE, "the decoder is a null pointer");
  if (decoder->begun) return TFM_OK;
  return tfm_refuse(error, TFM_E_USAGE, "the decoder has not begun: tfm_decoder_begin comes first");
}

tfm_status decoder_check_row(const tfm_decoder *decoder, int64_t row, tfm_error *error) {
  tfm_status status = check_begun(decoder, error);
  if (status) return status;
  if (row >= 0 && row < decoder->max_rows && decoder->rows[row].exists) return TFM_OK;
  return tfm_refuse(error, TFM_E_INPUT, "there is no row %lld", (long long)row);
}

/* Gives a flat block back, if there is one. */
static void drop_flat(tfm_decoder *decoder, char **flat) {
  if (*flat) page_drop(&decoder->flat_pages, *flat);
  *flat = NULL;
}

static void forget_row(tfm_decoder *decoder, DecoderRow *row) {
  page_list_cut(&decoder->own_pages, &row->own, 0);
  drop_flat(decoder, &row->flat);
  row->exists = false;
  row->length = 0;
}

void decoder_forget_rows(tfm_decoder *decoder) {
  for (int64_t i = 0; i < decoder->max_rows; i++)
    if (decoder->rows[i].exists) forget_row(decoder, &decoder->rows[i]);
}

/* An encoder program that does not count its sources has one, which all items share. */
static tfm_status read_item(const tfm_decoder *decoder, int64_t item, int64_t *read, tfm_error *error) {
  bool counted = decoder->source && decoder->decoding->encoder_rows != TFM_NONE;
  if (item < 0 || (counted && item >= decoder->items))
    return tfm_refuse(error, TFM_E_INPUT, "there is no item %lld: there are %lld", (long long)item,
                          (long long)decoder->items);
  *read = counted ? item : 0;
  return TFM_OK;
}

/* The first number that no row has. */
static tfm_status find_room(const tfm_decoder *decoder, int64_t *row, tfm_error *error) {
  if (!row) return tfm_refuse(error, TFM_E_USAGE, "there is no place for the row's number");
  int64_t number = 0;
  while (number < decoder->max_rows && decoder->rows[number].exists) number++;
  if (number == decoder->max_rows)
    return tfm_refuse(error, TFM_E_INPUT, "there is room for %lld rows, and all are there",
                      (long long)decoder->max_rows);
  *row = number;
  return TFM_OK;
}

tfm_status tfm_decoder_join(tfm_decoder *decoder, int64_t item, int64_t *row, tfm_error *error) {
  tfm_status status = check_begun(decoder, error);
  int64_t number;
  if (!status) status = read_item(decoder, item, &item, error);
  if (!status) status = find_room(decoder, row ? &number : NULL, error);
  if (status) return status;
  decoder->rows[number].exists = true;
  decoder->rows[number].item = item;
  decoder->rows[number].length = 0;
  *row = number;
  return tfm_succeed(error);
}

tfm_status tfm_decoder_leave(tfm_decoder *decoder, int64_t row, tfm_error *error) {
  tfm_status status = decoder_check_row(decoder, row, error);
  if (status) return status;
  forget_row(decoder, &decoder->rows[row]);
  return tfm_succeed(error);
}

// ---- copies ----

static tfm_status check_parents(const tfm_decoder *decoder, int64_t n, const int64_t *parents, tfm_error *error) {
  tfm_status status = check_begun(decoder, error);
  if (status) return status;
  if (n < 0 || n > decoder->max_rows)
    return tfm_refuse(error, TFM_E_INPUT, "there is room for %lld rows, not for %lld",
                          (long long)decoder->max_rows, (long long)n);
  if (n && !parents) return tfm_refuse(error, TFM_E_USAGE, "the parents are a null pointer");
  for (int64_t i = 0; i < n && !status; i++) status = decoder_check_row(decoder, parents[i], error);
  return status;
}

/* Whether the rows stay as they are: usual in greedy decoding, and worth no copies. */
static bool nothing_moves(const tfm_decoder *decoder, int64_t n, const int64_t *parents) {
  for (int64_t i = 0; i < n; i++)
    if (parents[i] != i) return false;
  for (int64_t i = n; i < decoder->max_rows; i++)
    if (decoder->rows[i].exists) return false;
  return true;
}

/* Copies refer to the pages of their parents. A row that writes to a page which others have too gets a copy of it; the
 * last row that has it writes in place. */
static void copy_row(tfm_decoder *decoder, DecoderRow *row, const DecoderRow *parent) {
  row->exists = true;
  row->item = parent->item;
  row->length = parent->length;
  row->flat = parent->flat;
  if (row->flat) page_keep(&decoder->flat_pages, row->flat);
  page_list_copy(&decoder->own_pages, &row->own, &parent->own);
}

tfm_status tfm_decoder_fork(tfm_decoder *decoder, int64_t row, int64_t *copy, tfm_error *error) {
  tfm_status status = decoder_check_row(decoder, row, error);
  int64_t number;
  if (!status) status = find_room(decoder, copy ? &number : NULL, error);
  if (status) return status;
  copy_row(decoder, &decoder->rows[number], &decoder->rows[row]);
  *copy = number;
  return tfm_succeed(error);
}

tfm_status tfm_decoder_reorder(tfm_decoder *decoder, int64_t n, const int64_t *parents, tfm_error *error) {
  tfm_status status = check_parents(decoder, n, parents, error);
  if (status) return status;
  if (nothing_moves(decoder, n, parents)) return tfm_succeed(error);
  for (int64_t i = 0; i < n; i++) copy_row(decoder, &decoder->spare[i], &decoder->rows[parents[i]]);
  decoder_forget_rows(decoder);
  DecoderRow *before = decoder->rows;
  decoder->rows = decoder->spare;
  decoder->spare = before;
  return tfm_succeed(error);
}

// ---- forgetting ----

/* Keeps the first `length` positions of a cache that is a tensor [outer][past][inner]; strides are in bytes. memmove,
 * because `to` may be `from`: each part moves towards the front. */
static void cut_flat(const tfm_decoder *decoder, uint32_t input, char *to, const char *from, int64_t past,
                     int64_t length) {
  const tfm_tensor_info *info = &decoder->decoding->step->inputs[input];
  const int64_t *dims = decoder->step->binding.input_dims + (size_t)input * TFM_MAX_RANK;
  uint32_t axis = decoder->decoding->inputs[input].past_axis;
  int64_t outer = 1, inner = dtype_size(info->dtype);
  for (uint32_t i = 0; i < info->rank; i++) {
    int64_t dim = dims[i];
    if (i < axis) outer *= dim;
    if (i > axis) inner *= dim;
  }
  to += decoder->inputs[input].flat_offset;
  from += decoder->inputs[input].flat_offset;
  for (int64_t i = 0; i < outer; i++)
    memmove(to + i * length * inner, from + i * past * inner, (size_t)(length * inner));
}

/* Dims of a cache with `past` positions are needed, so the sizes of the row are set first. A block that other rows
 * share is replaced by one of its own. */
static tfm_status truncate_flat(tfm_decoder *decoder, DecoderRow *row, int64_t length, tfm_error *error) {
  decoder_set_symbols(decoder, group_of_row(decoder, row), 1, row->length, 1, 1);
  tfm_status status = context_set_symbols(decoder->step, decoder->symbols, error);
  if (status) return status;
  char *from = row->flat;
  bool shared = page_is_shared(&decoder->flat_pages, from);
  if (shared) row->flat = page_take(&decoder->flat_pages);
  for (uint32_t i = 0; i < decoder->decoding->step->n_inputs; i++)
    if (input_is_flat_cache(decoder->decoding, i))
      cut_flat(decoder, i, row->flat, from, row->length, length);
  if (shared) page_drop(&decoder->flat_pages, from);
  return TFM_OK;
}

tfm_status tfm_decoder_truncate(tfm_decoder *decoder, int64_t number, int64_t length, tfm_error *error) {
  tfm_status status = decoder_check_row(decoder, number, error);
  if (status) return status;
  DecoderRow *row = &decoder->rows[number];
  if (length < 0 || length > row->length)
    return tfm_refuse(error, TFM_E_INPUT, "row %lld has %lld tokens, not %lld", (long long)number,
                          (long long)row->length, (long long)length);
  if (row->flat && length < row->length && (status = truncate_flat(decoder, row, length, error))) return status;
  row->length = length;
  page_list_cut(&decoder->own_pages, &row->own, length);
  return tfm_succeed(error);
}

int64_t tfm_decoder_length(const tfm_decoder *decoder, int64_t row) {
  return decoder_check_row(decoder, row, NULL) ? -1 : decoder->rows[row].length;
}

// ---- cutting a call into runs ----

typedef struct Together { /* runs that are collected for lockstep */
  const int64_t *members;
  int64_t rows, tokens, n;
  DecoderRun runs[MOST_TOGETHER];
} Together;

// ---- tokens and logits ----

/* Whether the logits of these members are neighbours in the caller's memory, so that a run can write them there. */
static bool side_by_side(const int64_t *members, int64_t n) {
  for (int64_t i = 1; i < n; i++)
    if (members[i] != members[0] + i) return false;
  return true;
}

/* Where the caller wants the numbers after token `number` of the last `kept` tokens of a member; NULL: not wanted. */
static float *place_of(const DecoderCall *call, float *array, int64_t width, int64_t member, int64_t number) {
  return array ? array + (member * call->kept + number) * width : NULL;
}

/* Puts the rows of a run and their tokens from number `done` on into the decoder's arrays. */
static void collect_tokens(tfm_decoder *decoder, const DecoderCall *call, const DecoderRun *run, int64_t done) {
  for (int64_t i = 0; i < run->rows; i++) {
    decoder->run_rows[run->first + i] = decoder_row_of(decoder, call, run->members[i]);
    memcpy(decoder->tokens + run->first_token + i * run->fresh, call->rows[run->members[i]].tokens + done,
           (size_t)run->fresh * sizeof *decoder->tokens);
  }
}

/* Says what the caller wants of a run whose first logits are row `before` of `logits` and `logsumexp`. */
static void want(const DecoderCall *call, DecoderRun *run, float *logits, float *logsumexp, int64_t before,
                 int64_t vocab) {
  if (call->logits) run->logits = logits + before * vocab;
  if (call->logsumexp) run->logsumexp = logsumexp + before;
  run->best = call->best;
}

/* Copies numbers that were computed in order to where the caller wants those of each member. */
static void spread(const DecoderCall *call, const int64_t *members, int64_t n, float *array, const float *from,
                   int64_t width) {
  if (!array) return;
  for (int64_t i = 0; i < n; i++)
    memcpy(place_of(call, array, width, members[i], 0), from + i * call->kept * width,
           (size_t)(call->kept * width) * sizeof *from);
}

/* Executes runs that give the logits after the last call->kept tokens of their rows, straight into the caller's memory
 * where these are neighbours there. */
static tfm_status run_with_logits(tfm_decoder *decoder, const DecoderCall *call, Together *together, tfm_error *error) {
  const int64_t *members = together->members, vocab = decoder->decoding->vocab;
  bool direct = side_by_side(members, together->rows);
  float *logits = direct ? place_of(call, call->logits, vocab, members[0], 0) : decoder->logits;
  float *logsumexp = direct ? place_of(call, call->logsumexp, 1, members[0], 0) : decoder->logsumexp;
  for (int64_t i = 0; i < together->n && call->kept; i++) {
    DecoderRun *run = &together->runs[i];
    want(call, run, logits, logsumexp, run->first * call->kept, vocab);
  }
  tfm_status status = decoder_run(decoder, together->runs, together->n, error);
  if (status || direct || !call->kept) return status;
  spread(call, members, together->rows, call->logits, decoder->logits, vocab);
  spread(call, members, together->rows, call->logsumexp, decoder->logsumexp, 1);
  return TFM_OK;
}

// ---- lockstep runs ----

/* Executes the collected runs in lockstep and empties the collection. */
static tfm_status run_together(tfm_decoder *decoder, const DecoderCall *call, Together *together, tfm_error *error) {
  if (!together->n) return TFM_OK;
  for (int64_t i = 0; i < together->n; i++) collect_tokens(decoder, call, &together->runs[i], 0);
  tfm_status status = run_with_logits(decoder, call, together, error);
  together->n = together->rows = together->tokens = 0;
  return status;
}

/* Whether another run can join the collection: bounded runs, tokens (workspace) and rows of logits. */
static bool has_room(const tfm_decoder *decoder, const DecoderCall *call, const Together *together, int64_t rows,
                     int64_t fresh) {
  if (!together->n) return true;
  return together->n < decoder->most_together && together->tokens + rows * fresh <= RUN_TOKENS &&
         (together->rows + rows) * call->kept <= decoder->max_rows;
}

/* Adds a run of rows that get all their tokens at once. The first run of a collection may be any size. */
static void add_run(const tfm_decoder *decoder, const DecoderCall *call, Together *together, const int64_t *members,
                    int64_t rows) {
  const DecoderRow *row = decoder_row_of(decoder, call, members[0]);
  int64_t fresh = call->rows[members[0]].n_tokens;
  if (!together->n) together->members = members;
  together->runs[together->n++] = (DecoderRun){.group = group_of_row(decoder, row),
                                               .members = members,
                                               .rows = rows,
                                               .first = together->rows,
                                               .first_token = together->tokens,
                                               .past = row->length,
                                               .fresh = fresh,
                                               .kept = greatest_of(1, call->kept)};
  together->rows += rows;
  together->tokens += rows * fresh;
}

// ---- long beginnings ----

/* Tokens [done, done + fresh) of rows that all have the same number of them. Of several rows, all logits that are
 * wanted come from one chunk; of one row they may come from several. */
static tfm_status run_chunk(tfm_decoder *decoder, const DecoderCall *call, const int64_t *members, int64_t n,
                            int64_t done, int64_t fresh, tfm_error *error) {
  const int64_t end = done + fresh, vocab = decoder->decoding->vocab;
  const int64_t first = call->rows[*members].n_tokens - call->kept;
  const int64_t kept = greatest_of(0, end - greatest_of(done, first)), number = end - kept - first;
  Together chunk = {.members = members, .rows = n, .n = 1};
  const DecoderRow *row = decoder_row_of(decoder, call, *members);
  DecoderRun *run = &chunk.runs[0];
  *run = (DecoderRun){.group = group_of_row(decoder, row),
                      .members = members,
                      .rows = n,
                      .past = row->length + done,
                      .fresh = fresh,
                      .kept = greatest_of(1, kept)};
  collect_tokens(decoder, call, run, done);
  if (kept && kept == call->kept) return run_with_logits(decoder, call, &chunk, error);
  if (kept)
    want(call, run, place_of(call, call->logits, vocab, *members, number),
         place_of(call, call->logsumexp, 1, *members, number), 0, vocab);
  return decoder_run(decoder, run, 1, error);
}

/* The first chunk is the shorter one, so that the last has all the logits that are wanted. */
static tfm_status run_chunks(tfm_decoder *decoder, const DecoderCall *call, const int64_t *members, int64_t n,
                             tfm_error *error) {
  int64_t most = decoder_chunk(n), total = call->rows[members[0]].n_tokens, done = 0;
  tfm_status status = TFM_OK;
  for (int64_t fresh = (total - 1) % most + 1; done < total && !status; done += fresh, fresh = most)
    status = run_chunk(decoder, call, members, n, done, fresh, error);
  return status;
}

// ---- the call ----

/* Rows that can be in one run: equal lengths, equal numbers of new tokens, sources of equal sizes. */
static bool alike(const tfm_decoder *decoder, const DecoderCall *call, int64_t a, int64_t b) {
  const DecoderRow *row = decoder_row_of(decoder, call, a), *other = decoder_row_of(decoder, call, b);
  return row->length == other->length && call->rows[a].n_tokens == call->rows[b].n_tokens &&
         group_of_row(decoder, row) == group_of_row(decoder, other);
}

/* Puts the rows of the call into decoder->members, each followed by all that are like it. Quadratic in the rows of a
 * call, of which there are few. */
static void order_members(tfm_decoder *decoder, const DecoderCall *call) {
  int64_t n = 0;
  for (int64_t i = 0; i < call->n; i++) decoder->done[i] = 0;
  for (int64_t first = 0; first < call->n; first++) {
    if (decoder->done[first]) continue;
    for (int64_t i = first; i < call->n; i++) {
      if (decoder->done[i] || !alike(decoder, call, first, i)) continue;
      decoder->done[i] = 1;
      decoder->members[n++] = i;
    }
  }
}

/* How many members, from the first on, are one run. With several logits per row, all of them must come from one
 * chunk. */
static int64_t run_size(const tfm_decoder *decoder, const DecoderCall *call, const int64_t *members, int64_t most) {
  if (!decoder_has_rows(decoder)) return 1;
  int64_t n = 1;
  while (n < most && alike(decoder, call, members[0], members[n])) n++;
  if (call->kept > 1 || call->best) n = greatest_of(1, least_of(n, RUN_TOKENS / call->kept));
  if (side_by_side(members, n) || call->kept == 0) return n;
  return greatest_of(1, least_of(n, decoder->max_rows / call->kept));
}

/* Executes a checked call whose rows have room in their pages. Short runs are collected and go in lockstep; long
 * beginnings are cut into chunks and go alone. */
static tfm_status run_call(tfm_decoder *decoder, const DecoderCall *call, tfm_error *error) {
  Together together = {.n = 0};
  tfm_status status = TFM_OK;
  order_members(decoder, call);
  for (int64_t first = 0, rows; first < call->n && !status; first += rows) {
    const int64_t *members = decoder->members + first;
    rows = run_size(decoder, call, members, call->n - first);
    const int64_t fresh = call->rows[members[0]].n_tokens;
    const bool is_long = fresh > decoder_chunk(rows);
    if (is_long || !has_room(decoder, call, &together, rows, fresh))
      status = run_together(decoder, call, &together, error);
    if (status) return status;
    if (is_long) status = run_chunks(decoder, call, members, rows, error);
    else add_run(decoder, call, &together, members, rows);
  }
  return status ? status : run_together(decoder, call, &together, error);
}

// ---- checking a call ----

/* A row that is longer than the model allows: the model's own check gives the message. */
static tfm_status refuse_length(tfm_decoder *decoder, const SourceGroup *group, int64_t length, tfm_error *error) {
  decoder_set_symbols(decoder, group, 1, length - 1, 1, 1);
  tfm_status status = context_set_shapes(decoder->step, decoder->symbols, error);
  return status ? status : tfm_refuse(error, TFM_E_INPUT, "a row of %lld tokens is too long", (long long)length);
}

/* One row of the call: it exists, is named once, gets tokens, and stays within the length that there is room for. */
static tfm_status check_part(tfm_decoder *decoder, const tfm_decoder_row *part, int64_t kept, tfm_error *error) {
  tfm_status status = decoder_check_row(decoder, part->row, error);
  if (status) return status;
  const DecoderRow *row = &decoder->rows[part->row];
  long long number = part->row;
  if (row->in_call) return tfm_refuse(error, TFM_E_INPUT, "row %lld is there twice", number);
  if (part->n_tokens < 1) return tfm_refuse(error, TFM_E_INPUT, "row %lld gets no tokens", number);
  if (!part->tokens) return tfm_refuse(error, TFM_E_USAGE, "the tokens of row %lld are a null pointer", number);
  if (kept > part->n_tokens)
    return tfm_refuse(error, TFM_E_INPUT, "row %lld gets %lld tokens: there are no logits after the last %lld", number,
                          (long long)part->n_tokens, (long long)kept);
  if (part->n_tokens > decoder->max_length - row->length)
    return tfm_refuse(error, TFM_E_INPUT, "row %lld has %lld tokens and gets %lld: there is room for %lld", number,
                          (long long)row->length, (long long)part->n_tokens, (long long)decoder->max_length);
  const SourceGroup *group = group_of_row(decoder, row);
  if (part->n_tokens > group->longest - row->length)
    return refuse_length(decoder, group, row->length + part->n_tokens, error);
  return TFM_OK;
}

/* in_call marks rows that were seen, so that a row which is named twice is found; all marks are cleared again. */
static tfm_status check_call(tfm_decoder *decoder, const DecoderCall *call, tfm_error *error) {
  if (!decoder || !decoder->begun) return decoder_check_row(decoder, 0, error);
  if (call->n < 0 || call->kept < 0) return tfm_refuse(error, TFM_E_INPUT, "a number of rows or logits is negative");
  if (call->n && !call->rows) return tfm_refuse(error, TFM_E_USAGE, "the rows are a null pointer");
  if (call->logsumexp && decoder->decoding->logsumexp == TFM_NONE)
    return tfm_refuse(error, TFM_E_USAGE, "this model gives no logsumexp");
  tfm_status status = TFM_OK;
  int64_t checked = 0;
  for (; checked < call->n && !status; checked++) {
    status = check_part(decoder, &call->rows[checked], call->kept, error);
    if (!status) decoder->rows[call->rows[checked].row].in_call = true;
  }
  for (int64_t i = 0; i < checked; i++) {
    int64_t row = call->rows[i].row;
    if (row >= 0 && row < decoder->max_rows) decoder->rows[row].in_call = false;
  }
  return status;
}

// ---- success and failure ----

/* On success the row has its new tokens and caches; on failure the pages beyond its old length are given back. What
 * was written in its last page behind the length has no meaning. */
static void finish_row(tfm_decoder *decoder, DecoderRow *row, int64_t n_tokens, bool succeeded) {
  if (succeeded) {
    row->length += n_tokens;
    if (row->next_flat) {
      drop_flat(decoder, &row->flat);
      row->flat = row->next_flat;
    }
  } else {
    drop_flat(decoder, &row->next_flat);
    page_list_cut(&decoder->own_pages, &row->own, row->length);
  }
  row->next_flat = NULL;
}

/* Pages are made writable before the runs, by one thread; then nothing in the runs changes the pools. */
static tfm_status take_step(tfm_decoder *decoder, const DecoderCall *call, tfm_error *error) {
  tfm_status status = check_call(decoder, call, error);
  if (status) return status;
  if (decoder->own_pages.n_pages)
    for (int64_t i = 0; i < call->n; i++) {
      DecoderRow *row = decoder_row_of(decoder, call, i);
      page_list_extend(&decoder->own_pages, &row->own, row->length, row->length + call->rows[i].n_tokens);
    }
  run_forget_cancelled(decoder->step);
  status = run_call(decoder, call, error);
  for (int64_t i = 0; i < call->n; i++)
    finish_row(decoder, decoder_row_of(decoder, call, i), call->rows[i].n_tokens, !status);
  return status ? status : tfm_succeed(error);
}

tfm_status tfm_decoder_step(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, int64_t kept, float *logits,
                            float *logsumexp, tfm_error *error) {
  const DecoderCall call = {.rows = rows, .n = n, .kept = kept, .logits = logits, .logsumexp = logsumexp};
  return take_step(decoder, &call, error);
}

tfm_status decoder_step_best(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, const tfm_best_call *best,
                             tfm_error *error) {
  const DecoderCall call = {.rows = rows, .n = n, .kept = 1, .best = best};
  return take_step(decoder, &call, error);
}

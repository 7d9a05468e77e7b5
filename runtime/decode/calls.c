/* Steps: a call is checked, cut into runs of the step program, and executed; its rows have their new tokens only when
 * all runs have succeeded. In: rows with their new tokens. Out: their logits, or what a search wants of these.
 *
 * The rows of a run have the same number of positions, the same number of new tokens, the same number of logits that
 * are wanted, and sources of the same sizes. Short runs are executed in lockstep; the long beginnings of rows are cut
 * into chunks, each a run of its own. Refused: rows that would become longer than there is room for, logits after more
 * tokens than a row gets. A step that fails leaves all rows as they were.
 *
 *   take_step             check_call, then pages that the new tokens may be written to   caches_extend (row_caches.c)
 *     run_call            cuts the rows of the call into runs
 *       run_together      those that go in lockstep; run_chunks: a long beginning, chunk after chunk
 *         decoder_run     lockstep.c: binds the runs to contexts; their tensors (staging.c), their lists of pages
 *           walk_run      walk/walk.c: all threads, step of the program after step
 *             step_append           loops/append.c: keys and values of new tokens go to pages
 *             step_attention_paged  loops/paged_attention.c: reads them there
 *             step_gemm             rows of all runs are one product; the last one's results may go to best_tokens.c
 *     rows_finish         rows have their tokens, or are as they were                    rows.c, row_caches.c */
#include <string.h>

#include "base/allocate.h"
#include "decode/calls.h"
#include "decode/decoder_memory.h"
#include "decode/lockstep.h"
#include "decode/row_caches.h"
#include "decode/rows.h"
#include "walk/walk.h"

// ---- room ----

void calls_begin(tfm_decoder *decoder, int64_t most_rows, int64_t most_kept) {
  decoder->calls.most_rows = most_rows;
  decoder->calls.most_kept = most_kept;
}

/* The most tokens of a run: n rows of at most RUN_TOKENS / n tokens each, or of one. */
static int64_t most_run_tokens(const tfm_decoder *decoder) {
  const int64_t length = least_of(RUN_TOKENS, decoder->rows.length);
  const int64_t rows = least_of(RUN_TOKENS, decoder->calls.most_rows);
  return greatest_of(decoder->calls.most_rows, least_of(RUN_TOKENS, rows * length));
}

/* Called twice, to learn the size and to place. */
static void place_call_tables(tfm_decoder *decoder, Layout *layout) {
  Calls *calls = &decoder->calls;
  const int64_t rows = calls->most_rows, kept = calls->most_kept;
#define ARRAY(place, count) (calls->place = layout_take(layout, (count), sizeof *calls->place))
  ARRAY(members, rows);
  ARRAY(places, rows);
  ARRAY(done, rows);
  ARRAY(run_rows, rows);
  ARRAY(model_rows, rows);
  ARRAY(tokens, most_run_tokens(decoder));
  ARRAY(logsumexp, kept);
  ARRAY(logits, kept > 1 ? kept * decoder->decoding->vocab : 0);
#undef ARRAY
  const int32_t threads = decoder->best.consumed.panels ? decoder->step->threads : 0;
  best_place(&decoder->best, layout, least_of(rows, RUN_TOKENS), threads);
}

tfm_status calls_reserve(tfm_decoder *decoder, tfm_error *error) {
  Layout layout = {0};
  place_call_tables(decoder, &layout);
  if (layout.bytes < 0 || !decoder_reserve_block(decoder, &decoder->calls.tables, layout.bytes))
    return tfm_no_memory(error, "the tables of a decoder");
  layout = (Layout){.block = decoder->calls.tables.memory};
  place_call_tables(decoder, &layout);
  return TFM_OK;
}

static float *place_writing(tfm_decoder *decoder, int64_t rows, int64_t kept, Layout *layout) {
  decoder->calls.written = layout_take(layout, rows, sizeof *decoder->calls.written);
  return layout_take(layout, kept * decoder->decoding->vocab, sizeof(float));
}

/* Most decoders never write, so there is no room for it before the first call. */
tfm_status calls_reserve_writing(tfm_decoder *decoder, int64_t n, int64_t kept, float **logits, tfm_error *error) {
  Calls *calls = &decoder->calls;
  const int64_t rows = greatest_of(n, calls->most_rows), all = greatest_of(kept, calls->most_kept);
  Layout layout = {0};
  place_writing(decoder, rows, all, &layout);
  if (layout.bytes < 0 || !decoder_reserve_block(decoder, &calls->writing, layout.bytes))
    return tfm_no_memory(error, "the logits of a step");
  layout = (Layout){.block = calls->writing.memory};
  *logits = place_writing(decoder, rows, all, &layout);
  return TFM_OK;
}

void calls_write_row(tfm_decoder *decoder, int64_t row, const tfm_decoder_row *part, int64_t kept) {
  decoder->calls.written[row] = *part;
  decoder->calls.written[row].kept = kept;
}

/* What the row of a generation gets in its next step, and how many rows of logits it gives. */
void calls_continue_row(tfm_decoder *decoder, int64_t row, const int32_t *tokens, int64_t n, int64_t kept) {
  decoder->calls.model_rows[row] = (tfm_decoder_row){.row = row, .tokens = tokens, .n_tokens = n, .kept = kept};
}

// ---- a call ----

/* What tfm_decoder_step is called with. */
typedef struct DecoderCall {
  const tfm_decoder_row *rows;
  int64_t n, kept;
  float *logits, *logsumexp;
  const tfm_best_call *best; /* NULL, or wanted in place of the logits and sums: kept is 1 */
} DecoderCall;

static DecoderRow *row_of(const tfm_decoder *decoder, const DecoderCall *call, int64_t member) {
  return &decoder->rows.row[call->rows[member].row];
}

/* Rows of logits that are wanted of a member. */
static int64_t kept_of(const DecoderCall *call, int64_t member) {
  const int64_t own = call->rows[member].kept;
  return own ? greatest_of(0, own) : call->kept;
}

// ---- cutting a call into runs ----

typedef struct Together { /* runs that are collected for lockstep */
  const int64_t *members;
  int64_t rows, tokens, kept, n; /* kept: rows of logits, at least one of each row */
  DecoderRun runs[MOST_TOGETHER];
} Together;

// ---- tokens and logits ----

/* Whether the logits of these members are neighbours in the caller's memory, so that a run can write them there. */
static bool side_by_side(const int64_t *members, int64_t n) {
  for (int64_t i = 1; i < n; i++)
    if (members[i] != members[0] + i) return false;
  return true;
}

/* Where the caller wants the numbers after token `number` of the last ones of a member; NULL: not wanted. */
static float *place_of(const tfm_decoder *decoder, float *array, int64_t width, int64_t member, int64_t number) {
  return array ? array + (decoder->calls.places[member] + number) * width : NULL;
}

/* Puts the rows of a run and their tokens from number `done` on into the decoder's arrays. */
static void collect_tokens(tfm_decoder *decoder, const DecoderCall *call, const DecoderRun *run, int64_t done) {
  Calls *calls = &decoder->calls;
  const int64_t fresh = run->sizes.fresh;
  for (int64_t i = 0; i < run->sizes.rows; i++) {
    calls->run_rows[run->first + i] = row_of(decoder, call, run->members[i]);
    memcpy(calls->tokens + run->first_token + i * fresh, call->rows[run->members[i]].tokens + done,
           (size_t)fresh * sizeof *calls->tokens);
  }
}

/* Says what the caller wants of a run whose first logits are row `before` of `logits` and `logsumexp`. */
static void want(const DecoderCall *call, DecoderRun *run, float *logits, float *logsumexp, int64_t before,
                 int64_t vocab) {
  if (call->logits) run->logits = logits + before * vocab;
  if (call->logsumexp) run->logsumexp = logsumexp + before;
  run->best = call->best;
}

/* Copies numbers that were computed in order to where the caller wants those of each member of a run. */
static void spread(const tfm_decoder *decoder, const DecoderRun *run, float *array, const float *from, int64_t width) {
  if (!array || !run->wants) return;
  const int64_t kept = run->sizes.kept;
  for (int64_t i = 0; i < run->sizes.rows; i++)
    memcpy(place_of(decoder, array, width, run->members[i], 0), from + (run->first_kept + i * kept) * width,
           (size_t)(kept * width) * sizeof *from);
}

/* Executes runs that give logits, straight into the caller's memory where these are neighbours there. Runs that want
 * none go along with those that do, and give some that nobody reads: so the product with the vocabulary stays one
 * product, whose weights are read once. */
static tfm_status run_with_logits(tfm_decoder *decoder, const DecoderCall *call, Together *together, tfm_error *error) {
  const int64_t *members = together->members, vocab = decoder->decoding->vocab;
  bool direct = side_by_side(members, together->rows), any = false;
  for (int64_t i = 0; i < together->n; i++) {
    any |= together->runs[i].wants;
    direct &= together->runs[i].wants;
  }
  float *logits = direct ? place_of(decoder, call->logits, vocab, members[0], 0) : decoder->calls.logits;
  float *sums = direct ? place_of(decoder, call->logsumexp, 1, members[0], 0) : decoder->calls.logsumexp;
  for (int64_t i = 0; i < together->n && any; i++)
    want(call, &together->runs[i], logits, sums, together->runs[i].first_kept, vocab);
  tfm_status status = decoder_run(decoder, together->runs, together->n, error);
  for (int64_t i = 0; i < together->n && !status && !direct; i++) {
    spread(decoder, &together->runs[i], call->logits, decoder->calls.logits, vocab);
    spread(decoder, &together->runs[i], call->logsumexp, decoder->calls.logsumexp, 1);
  }
  return status;
}

// ---- lockstep runs ----

/* Executes the collected runs in lockstep and empties the collection. */
static tfm_status run_together(tfm_decoder *decoder, const DecoderCall *call, Together *together, tfm_error *error) {
  if (!together->n) return TFM_OK;
  for (int64_t i = 0; i < together->n; i++) collect_tokens(decoder, call, &together->runs[i], 0);
  tfm_status status = run_with_logits(decoder, call, together, error);
  together->n = together->rows = together->tokens = together->kept = 0;
  return status;
}

/* Whether another run can join the collection: bounded runs, tokens (workspace) and rows of logits. */
static bool has_room(const tfm_decoder *decoder, const Together *together, const RunSizes *sizes) {
  if (!together->n) return true;
  return together->n < decoder->lockstep.most && together->tokens + sizes->rows * sizes->fresh <= RUN_TOKENS &&
         together->kept + sizes->rows * sizes->kept <= decoder->calls.most_kept;
}

/* Adds a run of rows that get all their tokens at once. The first run of a collection may be any size. */
static void add_run(Together *together, const DecoderRun *run) {
  if (!together->n) together->members = run->members;
  DecoderRun *added = &together->runs[together->n++];
  *added = *run;
  added->first = together->rows;
  added->first_token = together->tokens;
  added->first_kept = together->kept;
  together->rows += run->sizes.rows;
  together->tokens += run->sizes.rows * run->sizes.fresh;
  together->kept += run->sizes.rows * run->sizes.kept;
}

// ---- long beginnings ----

/* Tokens [done, done + fresh) of rows that all have the same number of them, of which `all` have the sizes. Of several
 * rows, all logits that are wanted come from one chunk; of one row they may come from several. */
static tfm_status run_tokens(tfm_decoder *decoder, const DecoderCall *call, const DecoderRun *all, int64_t done,
                             int64_t fresh, tfm_error *error) {
  const int64_t *members = all->members, total = call->rows[*members].n_tokens, vocab = decoder->decoding->vocab;
  const int64_t wanted = all->wants ? all->sizes.kept : 0, end = done + fresh, first = total - wanted;
  const int64_t kept = greatest_of(0, end - greatest_of(done, first)), number = end - kept - first;
  Together chunk = {.members = members, .rows = all->sizes.rows, .n = 1, .runs = {*all}};
  DecoderRun *run = &chunk.runs[0];
  run->sizes.past += done;
  run->sizes.fresh = fresh;
  run->sizes.kept = greatest_of(1, kept);
  run->wants = kept > 0;
  collect_tokens(decoder, call, run, done);
  if (kept && kept == wanted) return run_with_logits(decoder, call, &chunk, error);
  if (kept)
    want(call, run, place_of(decoder, call->logits, vocab, *members, number),
         place_of(decoder, call->logsumexp, 1, *members, number), 0, vocab);
  return decoder_run(decoder, run, 1, error);
}

/* The first chunk is the shorter one, so that the last has all the logits that are wanted. */
static tfm_status run_chunks(tfm_decoder *decoder, const DecoderCall *call, const DecoderRun *all, tfm_error *error) {
  const int64_t most = decoder_chunk(all->sizes.rows), total = all->sizes.fresh;
  int64_t done = 0;
  tfm_status status = TFM_OK;
  for (int64_t fresh = (total - 1) % most + 1; done < total && !status; done += fresh, fresh = most)
    status = run_tokens(decoder, call, all, done, fresh, error);
  return status;
}

// ---- the call ----

/* Rows that can be in one run: equal lengths, equal numbers of new tokens and of logits, sources of equal sizes. */
static bool alike(const tfm_decoder *decoder, const DecoderCall *call, int64_t a, int64_t b) {
  const DecoderRow *row = row_of(decoder, call, a), *other = row_of(decoder, call, b);
  return row->length == other->length && call->rows[a].n_tokens == call->rows[b].n_tokens &&
         kept_of(call, a) == kept_of(call, b) && group_of_row(decoder, row) == group_of_row(decoder, other);
}

/* Puts the rows of the call into calls.members, each followed by all that are like it, and works out where the logits
 * of each begin. Quadratic in the rows of a call, of which there are few. */
static void order_members(tfm_decoder *decoder, const DecoderCall *call) {
  Calls *calls = &decoder->calls;
  int64_t n = 0, place = 0;
  for (int64_t i = 0; i < call->n; i++) {
    calls->done[i] = 0;
    calls->places[i] = place;
    place += kept_of(call, i);
  }
  for (int64_t first = 0; first < call->n; first++) {
    if (calls->done[first]) continue;
    for (int64_t i = first; i < call->n; i++) {
      if (calls->done[i] || !alike(decoder, call, first, i)) continue;
      calls->done[i] = 1;
      calls->members[n++] = i;
    }
  }
}

/* How many members, from the first on, are one run. With several logits per row, all of them must come from one
 * chunk. */
static int64_t run_size(const tfm_decoder *decoder, const DecoderCall *call, const int64_t *members, int64_t most) {
  if (!decoder_has_rows(decoder)) return 1;
  const int64_t kept = kept_of(call, members[0]);
  int64_t n = 1;
  while (n < most && alike(decoder, call, members[0], members[n])) n++;
  if (kept > 1 || call->best) n = greatest_of(1, least_of(n, RUN_TOKENS / kept));
  if (side_by_side(members, n) || kept == 0) return n;
  return greatest_of(1, least_of(n, decoder->calls.most_kept / kept));
}

/* The run of the first `rows` members, with all their tokens. */
static DecoderRun whole_run(const tfm_decoder *decoder, const DecoderCall *call, const int64_t *members, int64_t rows) {
  const DecoderRow *row = row_of(decoder, call, members[0]);
  const int64_t kept = kept_of(call, members[0]);
  const RunSizes sizes = {.group = group_of_row(decoder, row), .rows = rows, .past = row->length,
                          .fresh = call->rows[members[0]].n_tokens, .kept = greatest_of(1, kept)};
  return (DecoderRun){.sizes = sizes, .members = members, .wants = kept > 0};
}

/* Executes a checked call whose rows have room in their pages. Short runs are collected and go in lockstep; long
 * beginnings are cut into chunks and go alone. */
static tfm_status run_call(tfm_decoder *decoder, const DecoderCall *call, tfm_error *error) {
  Together together = {.n = 0};
  tfm_status status = TFM_OK;
  order_members(decoder, call);
  for (int64_t first = 0, rows; first < call->n && !status; first += rows) {
    const int64_t *members = decoder->calls.members + first;
    rows = run_size(decoder, call, members, call->n - first);
    const DecoderRun run = whole_run(decoder, call, members, rows);
    const bool is_long = run.sizes.fresh > decoder_chunk(rows);
    if (is_long || !has_room(decoder, &together, &run.sizes)) status = run_together(decoder, call, &together, error);
    if (status) return status;
    if (is_long) status = run_chunks(decoder, call, &run, error);
    else add_run(&together, &run);
  }
  return status ? status : run_together(decoder, call, &together, error);
}

// ---- checking a call ----

/* A row that is longer than the model allows: the model's own check gives the message. */
static tfm_status refuse_length(tfm_decoder *decoder, const SourceGroup *group, int64_t length, tfm_error *error) {
  const RunSizes sizes = {group, 1, length - 1, 1, 1};
  tfm_status status = context_set_shapes(decoder->step, decoder_set_sizes(decoder, &sizes), error);
  return status ? status : tfm_refuse(error, TFM_E_INPUT, "a row of %lld tokens is too long", (long long)length);
}

/* One row of the call: it gets tokens, and stays within the length that there is room for. */
static tfm_status check_part(tfm_decoder *decoder, const DecoderCall *call, int64_t member, tfm_error *error) {
  const tfm_decoder_row *part = &call->rows[member];
  const DecoderRow *row = row_of(decoder, call, member);
  const long long number = part->row, kept = kept_of(call, member);
  if (part->n_tokens < 1) return tfm_refuse(error, TFM_E_INPUT, "row %lld gets no tokens", number);
  if (!part->tokens) return tfm_refuse(error, TFM_E_USAGE, "the tokens of row %lld are a null pointer", number);
  if (part->kept < -1)
    return tfm_refuse(error, TFM_E_INPUT, "row %lld wants %lld logits", number, (long long)part->kept);
  if (kept > part->n_tokens)
    return tfm_refuse(error, TFM_E_INPUT, "row %lld gets %lld tokens: there are no logits after the last %lld", number,
                      (long long)part->n_tokens, kept);
  if (part->n_tokens > decoder->rows.length - row->length)
    return tfm_refuse(error, TFM_E_INPUT, "row %lld has %lld tokens and gets %lld: there is room for %lld", number,
                      (long long)row->length, (long long)part->n_tokens, (long long)decoder->rows.length);
  const SourceGroup *group = group_of_row(decoder, row);
  if (part->n_tokens > group->longest - row->length)
    return refuse_length(decoder, group, row->length + part->n_tokens, error);
  return TFM_OK;
}

static tfm_status check_call(tfm_decoder *decoder, const DecoderCall *call, tfm_error *error) {
  tfm_status status = decoder_check_begun(decoder, error);
  if (status) return status;
  if (call->n < 0 || call->kept < 0) return tfm_refuse(error, TFM_E_INPUT, "a number of rows or logits is negative");
  if (call->n && !call->rows) return tfm_refuse(error, TFM_E_USAGE, "the rows are a null pointer");
  if (call->logsumexp && decoder->decoding->logsumexp == TFM_NONE)
    return tfm_refuse(error, TFM_E_USAGE, "this model gives no logsumexp");
  status = rows_check_call(decoder, call->n, call->rows, error);
  for (int64_t i = 0; i < call->n && !status; i++) status = check_part(decoder, call, i, error);
  if (!status && call->n > decoder->calls.most_rows)
    return tfm_refuse(error, TFM_E_INPUT, "a step of %lld rows: there is room for %lld", (long long)call->n,
                      (long long)decoder->calls.most_rows);
  return status;
}

// ---- the step ----

static tfm_status take_step(tfm_decoder *decoder, const DecoderCall *call, tfm_error *error) {
  tfm_status status = check_call(decoder, call, error);
  if (!status) status = caches_extend(decoder, call->n, call->rows, error);
  if (status) return status;
  for (int64_t i = 0; i < call->n; i++) caches_forget_before(decoder, row_of(decoder, call, i));
  run_forget_cancelled(decoder->step);
  status = run_call(decoder, call, error);
  for (int64_t i = 0; i < call->n; i++)
    rows_finish(decoder, row_of(decoder, call, i), call->rows[i].n_tokens, !status);
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

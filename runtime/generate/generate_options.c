/* The options of generation: defaults and checks, both made from generate_options.def, and what they do to the logits
 * of one row.
 *
 * In: what the caller gave, the prompts, the size of the vocabulary. Out: complete options, and where each row starts
 * and must end. Refused, before the model runs: values out of their range, tokens that do not exist, rows without room
 * for a token. Messages name the option as Hugging Face transformers does.
 *
 * To logits, the options apply in the order of transformers: repetition penalty, repeated n-grams, least length, forced
 * first and last token, suppressed tokens, the caller's own function. Nothing is normalised again afterwards. Only the
 * tokens concerned are touched: a forbidden token becomes -inf where it stands; a token with another score becomes -inf
 * too, and its new score goes to the list of changed ones. Forbidding comes first, so that a forbidden token is never
 * changed; the result does not depend on that order, because -inf stays what it is. Refused: scores that on_scores has
 * made NaN or +inf. */
#include <math.h>
#include <string.h>

#include "generate/generation_state.h"
#include "decode/logit_row.h"
#include "tfm/decode.h"

enum { MOST_LENGTH = INT32_MAX };

void tfm_generate_defaults(tfm_generate_options *options) {
  *options = (tfm_generate_options){.struct_size = sizeof *options};
#define SET_MEMBER(member, ...) options->member = __VA_ARGS__;
#define SET_count SET_MEMBER
#define SET_real SET_MEMBER
#define SET_flag SET_MEMBER
#define SET_token SET_MEMBER
#define SET_early SET_MEMBER
#define SET_seed SET_MEMBER
#define SET_tokens(member, ...) options->member = (tfm_token_list)__VA_ARGS__;
#define SET_start(member, ...)
#define GENERATE_OPTION(name, member, kind, initial, ...) SET_##kind(member, initial)
#include "tfm/abi/generate_options.def"
}

// ---- ranges ----

typedef struct Range {
  double least, most;
  bool is_open; /* `least` itself lies outside */
} Range;

#define BETWEEN(least, most) ((Range){least, most, false})
#define FROM(least) ((Range){least, INFINITY, false})
#define ABOVE(least) ((Range){least, INFINITY, true})
#define ABOVE_TO(least, most) ((Range){least, most, true})
#define ANY ((Range){-INFINITY, INFINITY, false})

/* A value that equals the default is legal even outside the range: it says that nobody set the option. */
static tfm_status check_count(Generation *g, const char *name, const int64_t *value, const int64_t *initial,
                              Range range) {
  if (*value == *initial || (*value >= (int64_t)range.least && *value <= (int64_t)range.most)) return TFM_OK;
  return generation_refuse(g, "%s is %lld; it must lie between %lld and %lld", name, (long long)*value,
                           (long long)range.least, (long long)range.most);
}

/* NaN fails every comparison and is refused with the others. */
static tfm_status check_real(Generation *g, const char *name, const double *value, const double *initial, Range range) {
  bool is_within = range.is_open ? *value > range.least : *value >= range.least;
  if (*value == *initial || (is_within && *value <= range.most && isfinite(*value))) return TFM_OK;
  if (!isfinite(range.least)) return generation_refuse(g, "%s is %g", name, *value);
  if (!range.is_open && isfinite(range.most))
    return generation_refuse(g, "%s is %g; it must lie between %g and %g", name, *value, range.least, range.most);
  if (!range.is_open) return generation_refuse(g, "%s is %g; it must be %g or greater", name, *value, range.least);
  if (!isfinite(range.most))
    return generation_refuse(g, "%s is %g; it must be greater than %g", name, *value, range.least);
  return generation_refuse(g, "%s is %g; it must be greater than %g, and %g at most", name, *value, range.least,
                           range.most);
}

static tfm_status check_early(Generation *g, const char *name, const tfm_early_stopping *value,
                              const tfm_early_stopping *initial, Range range) {
  (void)initial;
  if ((double)(int)*value >= range.least && (double)(int)*value <= range.most) return TFM_OK;
  return generation_refuse(g, "%s is %d", name, (int)*value);
}

static tfm_status check_token(Generation *g, const char *name, const int64_t *token, const int64_t *initial,
                              Range range) {
  (void)range;
  if ((initial && *token == *initial) || (*token >= 0 && *token < g->vocab)) return TFM_OK;
  return generation_refuse(g, "%s: token %lld does not exist, legal are 0 to %lld", name, (long long)*token,
                           (long long)g->vocab - 1);
}

static tfm_status check_tokens(Generation *g, const char *name, const tfm_token_list *list,
                               const tfm_token_list *initial, Range range) {
  (void)initial;
  if (list->n && !list->tokens)
    return generation_refuse(g, "%s: %llu tokens, but the pointer to them is NULL", name, (unsigned long long)list->n);
  tfm_status status = TFM_OK;
  for (uint64_t i = 0; i < list->n && status == TFM_OK; i++)
    status = check_token(g, name, &list->tokens[i], NULL, range);
  return status;
}

static tfm_status check_ranges(Generation *g) {
  const tfm_generate_options *o = &g->options;
  tfm_generate_options initial;
  tfm_generate_defaults(&initial);
  tfm_status status = TFM_OK;
#define CHECK_MEMBER(check, name, member, range) \
  if (status == TFM_OK) status = check(g, name, &o->member, &initial.member, range);
#define CHECK_count(...) CHECK_MEMBER(check_count, __VA_ARGS__)
#define CHECK_real(...) CHECK_MEMBER(check_real, __VA_ARGS__)
#define CHECK_early(...) CHECK_MEMBER(check_early, __VA_ARGS__)
#define CHECK_token(...) CHECK_MEMBER(check_token, __VA_ARGS__)
#define CHECK_tokens(...) CHECK_MEMBER(check_tokens, __VA_ARGS__)
#define CHECK_flag(...) /* all numbers but 0 say yes */
#define CHECK_seed(...) /* all seeds are good */
#define CHECK_start(...) /* checked as a token of the row */
#define GENERATE_OPTION(name, member, kind, initial, range, ...) CHECK_##kind(#name, member, range)
#include "tfm/abi/generate_options.def"
  return status;
}

/* What the value of one option says of another. */
static tfm_status check_combinations(Generation *g) {
  const tfm_generate_options *o = &g->options;
  if (o->num_beams > g->vocab)
    return generation_refuse(g, "num_beams is %lld, but there are only %lld tokens", (long long)o->num_beams,
                             (long long)g->vocab);
  if (o->num_return_sequences > o->num_beams)
    return check_count(g, "num_return_sequences", &o->num_return_sequences, &(int64_t){1},
                       BETWEEN(1, (double)o->num_beams));
  if (o->do_sample && o->num_beams > 1) return generation_refuse(g, "beam search with do_sample is not supported");
  return TFM_OK;
}

// ---- rows ----

/* What is wrong with one row: its number is part of every message. */
static tfm_status check_room(Generation *g, int64_t row) {
  const Item *item = &g->items[row];
  const tfm_generate_options *o = &g->options;
  if (item->start < 1) return generation_refuse(g, "row %lld: the prompt is empty", (long long)row);
  if (item->start > g->prompts->width)
    return generation_refuse(g, "row %lld: the prompt has %lld tokens, more than the %lld that were given",
                             (long long)row, (long long)item->start, (long long)g->prompts->width);
  if (item->start >= item->limit)
    return generation_refuse(g, "row %lld: the prompt has %lld tokens, and max_length is %lld", (long long)row,
                             (long long)item->start, (long long)item->limit);
  if (item->limit > MOST_LENGTH)
    return generation_refuse(g, "row %lld: %lld tokens are too many", (long long)row, (long long)item->limit);
  if (o->min_new_tokens > item->limit - item->start)
    return generation_refuse(g, "min_new_tokens is %lld, but row %lld can get %lld new tokens at most",
                             (long long)o->min_new_tokens, (long long)row, (long long)(item->limit - item->start));
  if (o->min_length > item->limit)
    return generation_refuse(g, "min_length is %lld, greater than max_length, %lld", (long long)o->min_length,
                             (long long)item->limit);
  if (item->padding < 0 || item->padding > item->start)
    return generation_refuse(g, "row %lld: %lld tokens of padding in a prompt of %lld", (long long)row,
                             (long long)item->padding, (long long)item->start);
  return TFM_OK;
}

/* The longest row that may grow from a prompt of `start` tokens; INT64_MAX where the sum is larger. */
static int64_t limit_of(const tfm_generate_options *options, int64_t start) {
  if (options->max_new_tokens == -1 && options->max_length != -1) return options->max_length;
  int64_t more = options->max_new_tokens != -1 ? options->max_new_tokens : TFM_DEFAULT_NEW_TOKENS, limit;
  return __builtin_add_overflow(start, more, &limit) ? INT64_MAX : limit;
}

int64_t tfm_decoder_longest_row(const tfm_generate_options *options, int64_t start) {
  if (start < 1) start = 1;
  if (start > TFM_DECODER_MOST) start = TFM_DECODER_MOST;
  const int64_t limit = limit_of(options, start);
  return limit < start ? start : limit > TFM_DECODER_MOST ? TFM_DECODER_MOST : limit;
}

/* Where each row starts and must end, from the prompts and the options. */
static tfm_status read_rows(Generation *g) {
  const tfm_prompts *prompts = g->prompts;
  tfm_status status = TFM_OK;
  for (int64_t i = 0; i < g->n_items && status == TFM_OK; i++) {
    Item *item = &g->items[i];
    item->start = prompts->lengths ? prompts->lengths[i] : prompts->width;
    item->padding = prompts->padding ? prompts->padding[i] : 0;
    item->limit = limit_of(&g->options, item->start);
    if (item->start > g->widest) g->widest = item->start;
    status = check_room(g, i);
  }
  return status;
}

/* A caller that was compiled with a shorter struct leaves the later options at their defaults. Temperature 0 is greedy
 * decoding: dividing by it would give NaN. */
tfm_status generation_read_options(Generation *g, const tfm_generate_options *given) {
  size_t size = given && given->struct_size ? given->struct_size : sizeof *given;
  tfm_generate_defaults(&g->options);
  if (given) memcpy(&g->options, given, size < sizeof *given ? size : sizeof *given);
  tfm_generate_options *o = &g->options;
  g->vocab = g->model->vocab;
  tfm_status status = check_count(g, "the number of tokens", &g->vocab, &(int64_t){1}, BETWEEN(1, MOST_LENGTH));
  if (status == TFM_OK) status = check_ranges(g);
  if (status == TFM_OK) status = check_combinations(g);
  if (status == TFM_OK) status = read_rows(g);
  if (status != TFM_OK) return status;
  g->beams = o->num_beams;
  g->pad = (int32_t)(o->pad_token_id != TFM_NO_TOKEN ? o->pad_token_id
                     : o->eos_token_ids.n            ? o->eos_token_ids.tokens[0]
                                                     : 0);
  if (o->temperature == 0) o->do_sample = 0;
  return TFM_OK;
}

// ---- what the options do ----

/* A row may hold ids beyond the vocabulary, such as a start token of its own: they have no score. */
static bool is_scored(const Generation *g, int32_t token) { return token >= 0 && token < g->vocab; }

/* A new score that the shift and the bounds know nothing of. */
static void change(Generation *g, RowScores *row, int64_t token, float score) {
  row->scores[token] = -INFINITY;
  g->changed[row->n_changed++] = (ChangedScore){token, score};
}

/* Each token once, however often it stands in the row: stamps mark those that were seen, and a new stamp clears all
 * marks at once. Padding in front is not part of the text. A negative score is multiplied, a positive one divided:
 * both make the token less likely (Keskar et al., CTRL, 2019). */
static void penalise_repetition(Generation *g, RowScores *row, const int32_t *tokens, int64_t length) {
  const float penalty = (float)g->options.repetition_penalty;
  g->stamp++;
  for (int64_t i = g->items[row->item].padding; i < length; i++) {
    if (!is_scored(g, tokens[i]) || g->stamps[tokens[i]] == g->stamp) continue;
    g->stamps[tokens[i]] = g->stamp;
    const float score = row_score(row, tokens[i]);
    if (score > -INFINITY) change(g, row, tokens[i], score < 0 ? score * penalty : score / penalty);
  }
}

/* Where the last n - 1 tokens stood before, the token that followed them is forbidden. */
static void forbid_ngrams(const Generation *g, float *scores, const int32_t *tokens, int64_t length) {
  const int64_t n = g->options.no_repeat_ngram_size;
  const int32_t *tail = tokens + length - n + 1;
  for (int64_t i = 0; i + n <= length; i++) {
    int64_t same = 0;
    while (same < n - 1 && tokens[i + same] == tail[same]) same++;
    if (same == n - 1 && is_scored(g, tokens[i + n - 1])) scores[tokens[i + n - 1]] = -INFINITY;
  }
}

static void forbid(float *scores, const tfm_token_list *list) {
  for (uint64_t i = 0; i < list->n; i++) scores[list->tokens[i]] = -INFINITY;
}

/* Only this token has a score, 0; if it is suppressed, no token has one. */
static void force(Generation *g, RowScores *row, int64_t token) {
  row->n_blocks = row->n_changed = 0;
  for (uint64_t i = 0; i < g->options.suppress_tokens.n; i++)
    if (g->options.suppress_tokens.tokens[i] == token) return;
  g->changed[row->n_changed++] = (ChangedScore){token, 0};
}

void row_settle(const Generation *g, RowScores *row) {
  const int64_t n = row->n_blocks ? g->vocab : 0;
  for (int64_t i = 0; i < n && row->shift != 0; i++) row->scores[i] = row_score(row, i);
  for (int64_t i = n; i < g->vocab; i++) row->scores[i] = -INFINITY;
  for (int64_t i = 0; i < row->n_changed; i++) row->scores[g->changed[i].token] = g->changed[i].score;
  row_scan(row->scores, g->vocab, row->bounds);
  row->n_blocks = row_blocks(g->vocab);
  row->n_changed = 0;
  row->shift = 0;
}

/* The caller sees all scores at once, so the row is settled first. It may write anything, so the row is checked
 * again. */
static tfm_status ask_caller(Generation *g, RowScores *row, const int32_t *tokens, int64_t length) {
  row_settle(g, row);
  generation_enter_caller(g);
  g->options.on_scores(g->options.on_scores_user, row->item, tokens, length, row->scores);
  generation_leave_caller(g);
  if (row_scan(row->scores, g->vocab, row->bounds)) return TFM_OK;
  return generation_refuse(g, "row %lld: the scores of token %lld are not finite after on_scores",
                           (long long)row->item, (long long)length);
}

/* Where the first token stands that is chosen: a second token that is forced is not. */
static int64_t first_free(const tfm_generate_options *o, const Item *item) {
  return item->start + (item->start == 1 && o->forced_bos_token_id != TFM_NO_TOKEN);
}

tfm_status process_row(Generation *g, int64_t number, RowScores *row) {
  const tfm_generate_options *o = &g->options;
  const Item *item = &g->items[g->row_items[number]];
  const int32_t *tokens = g->row_tokens[number];
  const int64_t length = g->row_lengths[number], n_blocks = row_blocks(g->vocab);
  float *scores = generation_row_scores(g, number);
  *row = (RowScores){scores, g->bounds + number * n_blocks, n_blocks, g->row_items[number], 0, g->shifts[number]};
  if (o->no_repeat_ngram_size && length >= o->no_repeat_ngram_size) forbid_ngrams(g, scores, tokens, length);
  if (length - item->start < o->min_new_tokens || length < o->min_length) forbid(scores, &o->eos_token_ids);
  forbid(scores, &o->suppress_tokens);
  if (length == first_free(o, item)) forbid(scores, &o->begin_suppress_tokens);
  if (o->repetition_penalty != 1) penalise_repetition(g, row, tokens, length);
  if (o->forced_bos_token_id != TFM_NO_TOKEN && length == 1) force(g, row, o->forced_bos_token_id);
  if (o->forced_eos_token_id != TFM_NO_TOKEN && length == item->limit - 1) force(g, row, o->forced_eos_token_id);
  return o->on_scores ? ask_caller(g, row, tokens, length) : TFM_OK;
}

/* Blocks whose bound is below the best so far are skipped; of equal scores the lowest token wins, whichever list it
 * comes from. */
int64_t row_best(const Generation *g, const RowScores *row) {
  float most = -INFINITY;
  int64_t best = TFM_NO_TOKEN;
  for (int64_t i = 0; i < row->n_changed; i++) {
    const ChangedScore *c = &g->changed[i];
    if (c->score > most || (c->score == most && c->token < best)) most = c->score, best = c->token;
  }
  for (int64_t block = 0; block < row->n_blocks; block++) {
    const int64_t first = block * ROW_BLOCK, end = first + ROW_BLOCK < g->vocab ? first + ROW_BLOCK : g->vocab;
    if (row->bounds[block] < most || (row->bounds[block] == most && first > best)) continue;
    for (int64_t i = first; i < end; i++)
      if (row->scores[i] > most || (row->scores[i] == most && i < best)) most = row->scores[i], best = i;
  }
  return best;
}

/* The options of generation: defaults and checks, both made from generate_options.def.
 *
 * In: what the caller gave, the prompts, the size of the vocabulary. Out: complete options, and where each row starts
 * and must end. Refused, before the model runs: values out of their range, tokens that do not exist, rows without room
 * for a token. Messages name the option as Hugging Face transformers does. */
#include <math.h>
#include <string.h>

#include "generate/generation_state.h"
#include "tfm/decode.h"

enum { MOST_LENGTH = INT32_MAX };

void tfm_generate_defaults(tfm_generate_options *options) {
  *options = (tfm_generate_options){.struct_size = sizeof *options};
#define SET_MEMBER(member, ...) options->member = __VA_ARGS__;
#define SET_count SET_MEMBER
#define SET_limit SET_MEMBER
#define SET_real SET_MEMBER
#define SET_flag SET_MEMBER
#define SET_token SET_MEMBER
#define SET_early SET_MEMBER
#define SET_seed SET_MEMBER
#define SET_tokens(member, ...) options->member = (tfm_token_list)__VA_ARGS__;
#define SET_biases(member, ...) options->member = (tfm_bias_list)__VA_ARGS__;
#define SET_start(member, ...)
#define GENERATE_OPTION(name, member, kind, initial, ...) SET_##kind(member, initial)
#include "tfm/abi/generate_options.def"
}

// ---- ranges ----

typedef struct Reader { /* what the checks need to know */
  int64_t vocab;
  tfm_error *error;
} Reader;

typedef struct Range {
  double least, most;
  bool is_open; /* `least` itself lies outside */
} Range;

#define BETWEEN(least, most) ((Range){least, most, false})
#define FROM(least) ((Range){least, INFINITY, false})
#define ABOVE(least) ((Range){least, INFINITY, true})
#define ABOVE_TO(least, most) ((Range){least, most, true})
#define ANY ((Range){-INFINITY, INFINITY, false})

#define refuse(reader, ...) tfm_refuse((reader)->error, TFM_E_INPUT, __VA_ARGS__)

/* A value that equals the default is legal even outside the range: it says that nobody set the option. */
static tfm_status check_count(const Reader *r, const char *name, const int64_t *value, const int64_t *initial,
                              Range range) {
  if (*value == *initial || (*value >= (int64_t)range.least && *value <= (int64_t)range.most)) return TFM_OK;
  return refuse(r, "%s is %lld; it must lie between %lld and %lld", name, (long long)*value,
                (long long)range.least, (long long)range.most);
}

/* NaN fails every comparison and is refused with the others. */
static tfm_status check_real(const Reader *r, const char *name, const double *value, const double *initial,
                             Range range) {
  bool is_within = range.is_open ? *value > range.least : *value >= range.least;
  if (*value == *initial || (is_within && *value <= range.most && isfinite(*value))) return TFM_OK;
  if (!isfinite(range.least)) return refuse(r, "%s is %g", name, *value);
  if (!range.is_open && isfinite(range.most))
    return refuse(r, "%s is %g; it must lie between %g and %g", name, *value, range.least, range.most);
  if (!range.is_open) return refuse(r, "%s is %g; it must be %g or greater", name, *value, range.least);
  if (!isfinite(range.most))
    return refuse(r, "%s is %g; it must be greater than %g", name, *value, range.least);
  return refuse(r, "%s is %g; it must be greater than %g, and %g at most", name, *value, range.least,
                range.most);
}

static tfm_status check_early(const Reader *r, const char *name, const tfm_early_stopping *value,
                              const tfm_early_stopping *initial, Range range) {
  (void)initial;
  if ((double)(int)*value >= range.least && (double)(int)*value <= range.most) return TFM_OK;
  return refuse(r, "%s is %d", name, (int)*value);
}

static tfm_status check_token(const Reader *r, const char *name, const int64_t *token, const int64_t *initial,
                              Range range) {
  (void)range;
  if ((initial && *token == *initial) || (*token >= 0 && *token < r->vocab)) return TFM_OK;
  return refuse(r, "%s: token %lld does not exist, legal are 0 to %lld", name, (long long)*token,
                (long long)r->vocab - 1);
}

static tfm_status check_tokens(const Reader *r, const char *name, const tfm_token_list *list,
                               const tfm_token_list *initial, Range range) {
  (void)initial;
  if (list->n && !list->tokens)
    return refuse(r, "%s: %llu tokens, but the pointer to them is NULL", name, (unsigned long long)list->n);
  tfm_status status = TFM_OK;
  for (uint64_t i = 0; i < list->n && status == TFM_OK; i++)
    status = check_token(r, name, &list->tokens[i], NULL, range);
  return status;
}

static tfm_status check_biases(const Reader *r, const char *name, const tfm_bias_list *list,
                               const tfm_bias_list *initial, Range range) {
  (void)initial;
  if (list->n && !list->biases)
    return refuse(r, "%s: %llu tokens, but the pointer to them is NULL", name, (unsigned long long)list->n);
  tfm_status status = TFM_OK;
  for (uint64_t i = 0; i < list->n && status == TFM_OK; i++) {
    status = check_token(r, name, &list->biases[i].token, NULL, range);
    if (status == TFM_OK) status = check_real(r, name, &list->biases[i].bias, &(double){0}, range);
  }
  return status;
}

static tfm_status check_ranges(const Reader *r, const tfm_generate_options *o) {
  tfm_generate_options initial;
  tfm_generate_defaults(&initial);
  tfm_status status = TFM_OK;
#define CHECK_MEMBER(check, name, member, range) \
  if (status == TFM_OK) status = check(r, name, &o->member, &initial.member, range);
#define CHECK_count(...) CHECK_MEMBER(check_count, __VA_ARGS__)
#define CHECK_limit CHECK_count
#define CHECK_real(...) CHECK_MEMBER(check_real, __VA_ARGS__)
#define CHECK_early(...) CHECK_MEMBER(check_early, __VA_ARGS__)
#define CHECK_token(...) CHECK_MEMBER(check_token, __VA_ARGS__)
#define CHECK_tokens(...) CHECK_MEMBER(check_tokens, __VA_ARGS__)
#define CHECK_biases(...) CHECK_MEMBER(check_biases, __VA_ARGS__)
#define CHECK_flag(...) /* all numbers but 0 say yes */
#define CHECK_seed(...) /* all seeds are good */
#define CHECK_start(...) /* checked as a token of the row */
#define GENERATE_OPTION(name, member, kind, initial, range, ...) CHECK_##kind(#name, member, range)
#include "tfm/abi/generate_options.def"
  return status;
}

/* What the value of one option says of another. */
static tfm_status check_combinations(const Reader *r, const tfm_generate_options *o) {
  if (o->num_beams > r->vocab)
    return refuse(r, "num_beams is %lld, but there are only %lld tokens", (long long)o->num_beams,
                  (long long)r->vocab);
  if (o->guesses && o->num_beams > 1)
    return refuse(r, "guesses is %lld and num_beams %lld: tokens of beams are not guessed", (long long)o->guesses,
                  (long long)o->num_beams);
  if (o->num_return_sequences > o->num_beams)
    return check_count(r, "num_return_sequences", &o->num_return_sequences, &(int64_t){1},
                       BETWEEN(1, (double)o->num_beams));
  if (o->do_sample && o->num_beams > 1) return refuse(r, "beam search with do_sample is not supported");
  return TFM_OK;
}

/* A caller that was compiled with a shorter struct leaves the later options at their defaults. Temperature 0 is greedy
 * decoding: dividing by it would give NaN. */
tfm_status options_complete(const tfm_generate_options *given, int64_t vocab, bool single,
                            tfm_generate_options *options, tfm_error *error) {
  const Reader reader = {vocab, error};
  size_t size = given && given->struct_size ? given->struct_size : sizeof *given;
  tfm_generate_defaults(options);
  if (given) memcpy(options, given, size < sizeof *given ? size : sizeof *given);
  if (single) options->num_beams = options->num_return_sequences = 1;
  tfm_status status = check_count(&reader, "the number of tokens", &vocab, &(int64_t){1}, BETWEEN(1, MOST_LENGTH));
  if (status == TFM_OK) status = check_ranges(&reader, options);
  if (status == TFM_OK) status = check_combinations(&reader, options);
  if (status == TFM_OK && options->temperature == 0) options->do_sample = 0;
  return status;
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

tfm_status generation_read_options(Generation *g, const tfm_generate_options *given) {
  tfm_generate_options *o = &g->options;
  g->vocab = g->model->vocab;
  tfm_status status = options_complete(given, g->vocab, false, o, g->error);
  if (status == TFM_OK) status = read_rows(g);
  if (status != TFM_OK) return status;
  g->beams = o->num_beams;
  g->pad = (int32_t)(o->pad_token_id != TFM_NO_TOKEN ? o->pad_token_id
                     : o->eos_token_ids.n            ? o->eos_token_ids.tokens[0]
                                                     : 0);
  return TFM_OK;
}

tfm_status tfm_options_check(const tfm_generate_options *options, int64_t vocab, int64_t start, tfm_error *error) {
  const tfm_generate_model model = {.vocab = vocab};
  const tfm_prompts prompts = {.n = 1, .width = start};
  Item item;
  Generation g = {.model = &model, .prompts = &prompts, .items = &item, .n_items = 1, .error = error};
  tfm_status status = generation_read_options(&g, options);
  return status == TFM_OK ? tfm_succeed(error) : status;
}

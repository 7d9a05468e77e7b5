/* Options of generation. In: what the caller gave, the prompts, the size of the vocabulary. Out: complete options, and
 * where each row starts and must end. Refused, before the model runs: everything out of its range, tokens that do not
 * exist, rows without room for a token. */
#include <math.h>
#include <string.h>

#include "generation.h"

enum { MOST_LENGTH = INT32_MAX };

void tfm_generate_defaults(tfm_generate_options *options) {
  *options = (tfm_generate_options){.struct_size = sizeof *options,
                                    .max_length = -1,
                                    .max_new_tokens = -1,
                                    .num_beams = 1,
                                    .num_return_sequences = 1,
                                    .length_penalty = 1,
                                    .repetition_penalty = 1,
                                    .forced_bos_token_id = TFM_NO_TOKEN,
                                    .forced_eos_token_id = TFM_NO_TOKEN,
                                    .pad_token_id = TFM_NO_TOKEN,
                                    .temperature = 1,
                                    .top_p = 1};
}

// ---- ranges ----

static tfm_status check_count(Generation *g, const char *name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return TFM_OK;
  return generation_refuse(g, "%s is %lld; it must lie between %lld and %lld", name, (long long)value, (long long)least,
                           (long long)most);
}

static tfm_status check_token(Generation *g, const char *name, int64_t token) {
  if (token >= 0 && token < g->vocab) return TFM_OK;
  return generation_refuse(g, "%s: token %lld does not exist, legal are 0 to %lld", name, (long long)token,
                           (long long)g->vocab - 1);
}

static tfm_status check_tokens(Generation *g, const char *name, const tfm_token_list *list) {
  if (list->n && !list->tokens)
    return generation_refuse(g, "%s: %llu tokens, but the pointer to them is NULL", name, (unsigned long long)list->n);
  tfm_status status = TFM_OK;
  for (uint64_t i = 0; i < list->n && status == TFM_OK; i++) status = check_token(g, name, list->tokens[i]);
  return status;
}

static tfm_status check_all_tokens(Generation *g) {
  const tfm_generate_options *o = &g->options;
  tfm_status status = check_tokens(g, "eos_token_id", &o->eos_token_ids);
  if (status == TFM_OK) status = check_tokens(g, "suppress_tokens", &o->suppress_tokens);
  if (status == TFM_OK && o->forced_bos_token_id != TFM_NO_TOKEN)
    status = check_token(g, "forced_bos_token_id", o->forced_bos_token_id);
  if (status == TFM_OK && o->forced_eos_token_id != TFM_NO_TOKEN)
    status = check_token(g, "forced_eos_token_id", o->forced_eos_token_id);
  if (status == TFM_OK && o->pad_token_id != TFM_NO_TOKEN) status = check_token(g, "pad_token_id", o->pad_token_id);
  return status;
}

static tfm_status check_counts(Generation *g) {
  const tfm_generate_options *o = &g->options;
  tfm_status status = check_count(g, "num_beams", o->num_beams, 1, TFM_MAX_BEAMS);
  if (status == TFM_OK && o->num_beams > g->vocab)
    status = generation_refuse(g, "num_beams is %lld, but there are only %lld tokens", (long long)o->num_beams,
                               (long long)g->vocab);
  if (status == TFM_OK) status = check_count(g, "num_return_sequences", o->num_return_sequences, 1, o->num_beams);
  if (status == TFM_OK) status = check_count(g, "no_repeat_ngram_size", o->no_repeat_ngram_size, 0, MOST_LENGTH);
  if (status == TFM_OK) status = check_count(g, "top_k", o->top_k, 0, MOST_LENGTH);
  if (status == TFM_OK) status = check_count(g, "min_new_tokens", o->min_new_tokens, 0, MOST_LENGTH);
  if (status == TFM_OK) status = check_count(g, "min_length", o->min_length, 0, MOST_LENGTH);
  if (status == TFM_OK && o->max_new_tokens != -1)
    status = check_count(g, "max_new_tokens", o->max_new_tokens, 1, MOST_LENGTH);
  if (status == TFM_OK && o->max_length != -1) status = check_count(g, "max_length", o->max_length, 1, MOST_LENGTH);
  return status;
}

static tfm_status check_numbers(Generation *g) {
  const tfm_generate_options *o = &g->options;
  if (!isfinite(o->length_penalty)) return generation_refuse(g, "length_penalty is %g", o->length_penalty);
  if (!(o->repetition_penalty > 0) || !isfinite(o->repetition_penalty))
    return generation_refuse(g, "repetition_penalty is %g; it must be greater than 0", o->repetition_penalty);
  if (!(o->temperature >= 0) || !isfinite(o->temperature))
    return generation_refuse(g, "temperature is %g; it must be 0 or greater", o->temperature);
  if (!(o->top_p > 0 && o->top_p <= 1))
    return generation_refuse(g, "top_p is %g; it must be greater than 0, and 1 at most", o->top_p);
  if ((unsigned)o->early_stopping > TFM_EARLY_NEVER)
    return generation_refuse(g, "early_stopping is %d", (int)o->early_stopping);
  if (o->do_sample && o->num_beams > 1) return generation_refuse(g, "beam search with do_sample is not supported");
  return TFM_OK;
}

// ---- rows ----

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

int64_t generation_limit(const tfm_generate_options *options, int64_t start) {
  if (options->max_new_tokens == -1 && options->max_length != -1) return options->max_length;
  int64_t more = options->max_new_tokens != -1 ? options->max_new_tokens : TFM_DEFAULT_NEW_TOKENS, limit;
  return __builtin_add_overflow(start, more, &limit) ? INT64_MAX : limit;
}

static tfm_status read_rows(Generation *g) {
  const tfm_prompts *prompts = g->prompts;
  tfm_status status = TFM_OK;
  for (int64_t i = 0; i < g->n_items && status == TFM_OK; i++) {
    Item *item = &g->items[i];
    item->start = prompts->lengths ? prompts->lengths[i] : prompts->width;
    item->padding = prompts->padding ? prompts->padding[i] : 0;
    item->limit = generation_limit(&g->options, item->start);
    if (item->start > g->widest) g->widest = item->start;
    status = check_room(g, i);
  }
  return status;
}

tfm_status generation_read_options(Generation *g, const tfm_generate_options *given) {
  size_t size = given && given->struct_size ? given->struct_size : sizeof *given;
  tfm_generate_defaults(&g->options);
  if (given) memcpy(&g->options, given, size < sizeof *given ? size : sizeof *given);
  tfm_generate_options *o = &g->options;
  g->vocab = g->model->vocab;
  tfm_status status = check_count(g, "the number of tokens", g->vocab, 1, MOST_LENGTH);
  if (status == TFM_OK) status = check_counts(g);
  if (status == TFM_OK) status = check_numbers(g);
  if (status == TFM_OK) status = check_all_tokens(g);
  if (status == TFM_OK) status = read_rows(g);
  if (status != TFM_OK) return status;
  g->beams = o->num_beams;
  g->pad = (int32_t)(o->pad_token_id != TFM_NO_TOKEN ? o->pad_token_id
                     : o->eos_token_ids.n            ? o->eos_token_ids.tokens[0]
                                                     : 0);
  if (o->temperature == 0) o->do_sample = 0;
  return TFM_OK;
}

/* tfm/generate.h: writing with a model, token by token. C99 and C++.
 *
 * The loop knows of the model only what tfm_generate_model says: how many tokens there are, and one function that gives
 * the scores of the next token for some rows. Whether that function runs the whole model anew or keeps what it computed
 * for earlier tokens is its own matter: each row says which row of the call before it continues.
 * Names, defaults and results of the options are those of `generate` in Hugging Face transformers. */
#ifndef TFM_GENERATE_H
#define TFM_GENERATE_H

#include "tfm/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TFM_NO_TOKEN = -1, TFM_MAX_BEAMS = 1024, TFM_DEFAULT_NEW_TOKENS = 20 };

typedef enum tfm_early_stopping {
  TFM_EARLY_FALSE, /* stop when the best running beam, as long as it is now, cannot win any more */
  TFM_EARLY_TRUE,  /* stop when num_beams rows have ended */
  TFM_EARLY_NEVER  /* stop when the best running beam, at its best possible length, cannot win any more */
} tfm_early_stopping;

typedef struct tfm_token_list {
  const int64_t *tokens;
  uint64_t n;
} tfm_token_list;

typedef struct tfm_generate_options { /* tfm_generate_defaults sets them all */
  size_t struct_size;
  int64_t max_length;     /* of a whole row, its start included; -1: start + max_new_tokens */
  int64_t max_new_tokens; /* wins over max_length; -1: not set. With neither: TFM_DEFAULT_NEW_TOKENS */
  int64_t min_length;     /* of a whole row; 0: none */
  int64_t min_new_tokens;
  int64_t num_beams;      /* 1: greedy or sampling */
  int64_t num_return_sequences;
  double length_penalty;
  tfm_early_stopping early_stopping;
  double repetition_penalty;
  int64_t no_repeat_ngram_size;
  int64_t forced_bos_token_id, forced_eos_token_id; /* TFM_NO_TOKEN: none */
  int64_t pad_token_id;                             /* TFM_NO_TOKEN: the first eos, else 0 */
  tfm_token_list eos_token_ids; /* none: only the length ends a row */
  tfm_token_list suppress_tokens;
  int32_t do_sample;
  double temperature; /* 0: no sampling, the largest score */
  int64_t top_k;      /* 0: off; more than there are tokens: all of them */
  double top_p;
  uint64_t seed; /* row i draws from stream i of the seed: its tokens do not depend on the other rows */
  /* Called for each token that is chosen, in beam search for the last token of each item's best running beam. Not 0:
   * nothing more is computed, and the rows are returned as they are. */
  int (*on_token)(void *user, int64_t item, int32_t token);
  void *on_token_user;
} tfm_generate_options;

typedef struct tfm_step_rows { /* one call for scores */
  int64_t n;
  const int32_t *const *tokens; /* tokens[i]: the whole row, left padding included */
  const int64_t *lengths;
  const int64_t *items;   /* the batch item that the row belongs to */
  const int64_t *parents; /* the row of the call before that it continues by its last token; -1 in the first call */
} tfm_step_rows;

typedef struct tfm_generate_model {
  int64_t vocab; /* at least 1 */
  void *user;
  /* Writes the scores of the token that follows each row to scores[n][vocab]. An error ends the generation with it.
   * log_sums: NULL, or room for n numbers: a model with `gives_log_sums` writes log(sum(exp(scores))) of each row there. */
  tfm_status (*scores)(void *user, const tfm_step_rows *rows, float *scores, float *log_sums, tfm_error *error);
  int32_t gives_log_sums;
} tfm_generate_model;

typedef struct tfm_prompts { /* what the rows start with: at least one token each */
  int64_t n, width;
  const int32_t *tokens;  /* [n][width] */
  const int64_t *lengths; /* tokens of each row, what follows is not read; NULL: all have `width` */
  const int64_t *padding; /* how many tokens at the beginning of each row are padding; NULL: none */
} tfm_prompts;

typedef struct tfm_generated {
  int64_t n, width;   /* n: items * num_return_sequences, item by item, the best first */
  int32_t *sequences; /* [n][width], start included, padded on the right */
  int64_t *lengths;   /* without that padding */
  float *scores;      /* [n] of beam search; NULL otherwise */
  int64_t n_tokens;   /* of these, the tokens that stand in no prompt */
} tfm_generated;

TFM_API void tfm_generate_defaults(tfm_generate_options *options);
/* `generated` is set on success only; tfm_generated_free gives its memory back. Fails with TFM_E_INPUT when an option
 * is out of its range, when a prompt leaves no room, when scores are NaN or +inf, or when every token is forbidden. */
TFM_API tfm_status tfm_generate(const tfm_generate_model *model, const tfm_prompts *prompts,
                                const tfm_generate_options *options, tfm_generated *generated, tfm_error *error);
TFM_API void tfm_generated_free(tfm_generated *generated); /* zeroes are ignored */
/* probabilities[n][vocab]: what the first token of each row is drawn from. */
TFM_API tfm_status tfm_generate_first_step(const tfm_generate_model *model, const tfm_prompts *prompts,
                                           const tfm_generate_options *options, float *probabilities, tfm_error *error);

#ifdef __cplusplus
}
#endif
#endif

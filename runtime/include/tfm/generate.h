/* tfm/generate.h: writing with a model, token by token. C99 and C++.
 *
 * The loop knows of the model only what tfm_generate_model says: how many tokens there are, and one function that gives
 * the scores of the next token for some rows. Whether that function runs the whole model anew or keeps what it computed
 * for earlier tokens is its own matter: each row says which row of the call before it continues.
 * Names, defaults and results of the options are those of `generate` in Hugging Face transformers. */
#ifndef TFM_GENERATE_H
#define TFM_GENERATE_H

#include "tfm/generate_types.h"
#include "tfm/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tfm_step_rows { /* one call for scores */
  int64_t n;
  const int32_t *const *tokens; /* tokens[i]: the whole row, left padding included */
  const int64_t *lengths;
  const int64_t *items;   /* the batch item that the row belongs to */
  const int64_t *parents; /* the row of the call before that it continues by its last token; -1 in the first call */
} tfm_step_rows;

typedef struct tfm_best_token {
  float logit;
  int32_t token;
} tfm_best_token;

typedef struct tfm_best_call { /* what is asked for in place of all scores of some rows */
  int64_t n_best;        /* so many tokens of each row: 1 to tfm_generate_model.most_best */
  /* [n][n_best]: the tokens with the largest scores, the best first, the lowest of equal ones. What is missing because the
   * others are -inf is TFM_NO_TOKEN with -inf. If a score of the row is NaN or +inf, the first score is NaN. */
  tfm_best_token *best;
  /* NULL, or for each row a bit per token, token t in word t / 64 of ceil(vocab / 64). Tokens whose bits are set are not
   * among the best: their scores, no others, are written to scores[n][vocab]. */
  const uint64_t *apart;
  float *logits;
  float *logsumexp;       /* as of tfm_generate_model.scores; those of tokens that are set apart belong to it */
} tfm_best_call;

typedef struct tfm_generate_model {
  int64_t vocab; /* at least 1 */
  void *user;
  /* Writes the scores of the token that follows each row to scores[n][vocab]. An error ends the generation with it.
   * logsumexp: NULL, or room for n numbers: a model with `gives_logsumexp` writes log(sum(exp(scores))) of each row there. */
  tfm_status (*logits)(void *user, const tfm_step_rows *rows, float *logits, float *logsumexp, tfm_error *error);
  int32_t gives_logsumexp;
  /* Does work(context, part, parts) for every part, with several threads if it has them: passes over all scores. May be
   * NULL: the thread that called does them alone. */
  void (*share)(void *user, void (*work)(void *context, int64_t part, int64_t parts), void *context);
  /* In place of `scores`, for a search that takes few of the largest and changes few; may be NULL. */
  tfm_status (*best)(void *user, const tfm_step_rows *rows, const tfm_best_call *call, tfm_error *error);
  int64_t most_best;
} tfm_generate_model;

typedef struct tfm_prompts { /* what the rows start with: at least one token each */
  int64_t n, width;
  const int32_t *tokens;  /* [n][width] */
  const int64_t *lengths; /* tokens of each row, what follows is not read; NULL: all have `width` */
  const int64_t *padding; /* how many tokens at the beginning of each row are padding; NULL: none */
} tfm_prompts;

/* What tfm_prompts.padding says of a row of `length` tokens that was filled up in front. */
static inline int64_t tfm_prompt_padding(const int32_t *tokens, int64_t length, int64_t pad) {
  int64_t n = 0;
  while (n < length && tokens[n] == pad) n++;
  return n;
}

TFM_API void tfm_generate_defaults(tfm_generate_options *options);
/* `generated` is set on success only; tfm_generated_free gives its memory back. Fails with TFM_E_INPUT when an option
 * is out of its range, when a prompt leaves no room, when scores are NaN or +inf, or when every token is forbidden. */
TFM_API tfm_status tfm_generate(const tfm_generate_model *model, const tfm_prompts *prompts,
                                const tfm_generate_options *options, tfm_generated *generated, tfm_error *error);
TFM_API void tfm_generated_free(tfm_generated *generated); /* NULL and zeroes are ignored */
/* probabilities[n][vocab]: what the first token of each row is drawn from. */
TFM_API tfm_status tfm_generate_first_step(const tfm_generate_model *model, const tfm_prompts *prompts,
                                           const tfm_generate_options *options, float *probabilities, tfm_error *error);

#ifdef __cplusplus
}
#endif
#endif

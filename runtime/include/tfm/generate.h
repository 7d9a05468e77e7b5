/* tfm/generate.h: generating sequences of tokens with a model. C99 and C++.
 *
 * The loop knows of the model only what tfm_generate_model says: the size of its vocabulary, and one function that
 * gives the logits of the next token of some rows. Whether that function runs the whole model again or caches what it
 * computed for earlier tokens is its own matter: each row says which row of the call before it continues. Names,
 * defaults and results of the options are those of `generate` in Hugging Face transformers. The caller's floating-point
 * mode (MXCSR: rounding, subnormal numbers) changes no result, is put back at the end, and is the one that the caller's
 * functions run in. */
#ifndef TFM_GENERATE_H
#define TFM_GENERATE_H

#include "tfm/generate_types.h"
#include "tfm/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tfm_step_rows { /* the rows of one call for logits; valid during the call */
  int64_t n;                    /* at least 1 */
  const int32_t *const *tokens; /* tokens[i]: the whole row, left padding included */
  const int64_t *lengths;       /* tokens of each row, at least 1 */
  const int64_t *items;         /* the batch item that the row belongs to */
  const int64_t *parents;       /* the row of the previous call that it continues by one token; -1 in the first call */
} tfm_step_rows;

typedef struct tfm_best_token {
  float logit;
  int32_t token;
} tfm_best_token;

typedef struct tfm_best_call { /* what is asked for in place of all logits of some rows */
  int64_t n_best; /* tokens wanted of each row: 1 to tfm_generate_model.most_best */
  /* [n][n_best]: the tokens with the largest logits, the best first; of equal logits the lowest token first. Where
   * fewer tokens have logits above -inf, the rest is TFM_NO_TOKEN with -inf. If a logit of the row is NaN or +inf, the
   * first logit is NaN, and the rest of the row has no meaning. */
  tfm_best_token *best;
  /* NULL, or a bit per token for each row: token t is in word t / 64 of the row's ceil(vocab / 64) words. Tokens whose
   * bits are set are set apart: they are not among the best, and their logits, no others, are written to
   * logits[n][vocab]. */
  const uint64_t *apart;
  float *logits;
  float *logsumexp; /* NULL, or [n]: as of tfm_generate_model.logits, the tokens that are set apart included */
} tfm_best_call;

/* What tfm_generate asks a model for. The thread that called tfm_generate makes all the calls. */
typedef struct tfm_generate_model {
  int64_t vocab; /* 1 to INT32_MAX */
  void *user;    /* passed to the functions below */
  /* Writes the logits of the token that follows each row to logits[n][vocab]; -inf says that a token never follows. An
   * error ends the generation with it. logsumexp: NULL, or room for n numbers: a model with `gives_logsumexp` writes
   * log(sum(exp(logits))) of each row there. */
  tfm_status (*logits)(void *user, const tfm_step_rows *rows, float *logits, float *logsumexp, tfm_error *error);
  int32_t gives_logsumexp;
  /* Calls work(context, part, parts) once for every part in [0, parts), from several threads if the model has them, and
   * returns when all have returned. NULL: the thread that called tfm_generate does all the work. */
  void (*share)(void *user, void (*work)(void *context, int64_t part, int64_t parts), void *context);
  /* In place of `logits`, for searches that need only a few of the largest; NULL: the model has no such function. */
  tfm_status (*best)(void *user, const tfm_step_rows *rows, const tfm_best_call *call, tfm_error *error);
  int64_t most_best; /* tokens of a row that `best` can give */
  /* In place of `logits` if the options ask for guesses; NULL: the model has no such function, and nothing is guessed.
   * The last guesses[i] tokens of row i are guesses. Writes the logits of the token that follows each of them, and
   * before these of the token behind the last that is no guess: guesses[i] + 1 rows of logits, row after row. Of the
   * row of the call before that a row continues, what stands behind its tokens but the last and the guesses is no part
   * of it: it was guessed wrongly. */
  tfm_status (*guessed)(void *user, const tfm_step_rows *rows, const int64_t *guesses, float *logits, tfm_error *error);
} tfm_generate_model;

typedef struct tfm_prompts { /* what the rows start with: at least one token each */
  int64_t n, width;       /* rows, one for each item of the batch; tokens of a row in `tokens` */
  const int32_t *tokens;  /* [n][width] */
  const int64_t *lengths; /* [n]: tokens of each row, of which the rest is not read; NULL: all have `width` */
  const int64_t *padding; /* [n]: tokens at the beginning of each row that are padding; NULL: none */
} tfm_prompts;

/* What tfm_prompts.padding is for a row of `length` tokens that was padded in front with `pad`. */
static inline int64_t tfm_prompt_padding(const int32_t *tokens, int64_t length, int64_t pad) {
  int64_t n = 0;
  while (n < length && tokens[n] == pad) n++;
  return n;
}

/* Sets every member, struct_size included, to its default. */
TFM_API void tfm_generate_defaults(tfm_generate_options *options);
/* Generates one row for each prompt, or num_return_sequences rows in beam search. `options` NULL: the defaults.
 * *generated is set on success only; the caller then owns its memory and frees it with tfm_generated_free.
 * TFM_E_INPUT: an option lies outside its range, a prompt leaves no room for a token, logits are NaN or +inf, or every
 * token is forbidden. Other errors are those of the model, and TFM_E_NOMEM. */
TFM_API tfm_status tfm_generate(const tfm_generate_model *model, const tfm_prompts *prompts,
                                const tfm_generate_options *options, tfm_generated *generated, tfm_error *error);
/* Frees the arrays and sets all members to zero. NULL and zeroes are ignored. */
TFM_API void tfm_generated_free(tfm_generated *generated);
/* probabilities[n][vocab]: what the first token of each row is drawn from, after all that the options do. One call of
 * the model; the errors are those of tfm_generate. */
TFM_API tfm_status tfm_generate_first_step(const tfm_generate_model *model, const tfm_prompts *prompts,
                                           const tfm_generate_options *options, float *probabilities, tfm_error *error);

/* --- One token at a time --- */

/* For callers that write the loop themselves: rows that come and go, each with its own options. The functions are those
 * of tfm_generate, so a row gets the tokens that it would get there. */

typedef struct tfm_stream { /* of random numbers, of one row: the caller's, and may be copied */
  uint64_t state, increment;
} tfm_stream;
/* Row number i of tfm_generate draws from tfm_stream_begin(seed, i). */
TFM_API tfm_stream tfm_stream_begin(uint64_t seed, uint64_t number);

/* What tfm_generate would refuse of these options for a prompt of `start` tokens: TFM_E_INPUT with its message. */
TFM_API tfm_status tfm_options_check(const tfm_generate_options *options, int64_t vocab, int64_t start,
                                     tfm_error *error);

/* Scratch for choosing tokens of a vocabulary of this size. One thread at a time may use a chooser. The caller owns
 * *chooser, which is NULL after a failure: TFM_E_INPUT (vocab is not 1 to INT32_MAX), TFM_E_NOMEM. */
typedef struct tfm_chooser tfm_chooser;
TFM_API tfm_status tfm_chooser_create(int64_t vocab, tfm_chooser **chooser, tfm_error *error);
TFM_API void tfm_chooser_destroy(tfm_chooser *chooser); /* NULL is ignored */

typedef struct tfm_choice_row { /* a row whose next token is wanted; all memory is the caller's */
  const tfm_generate_options *options; /* NULL: the defaults. num_beams, num_return_sequences, max_length,
                                          max_new_tokens, guesses and on_token have no effect; on_scores gets item 0 */
  const int32_t *tokens;   /* [length]: the whole row, its padding and its prompt included */
  int64_t length, start;   /* tokens of the row; of its prompt, padding included */
  int64_t limit;           /* its greatest length, for forced_eos_token_id */
  int64_t padding;         /* tokens at its beginning that are padding */
  float *logits;           /* [vocab]: overwritten */
  const uint32_t *allowed; /* NULL, or ceil(vocab / 32) words: token t may be chosen if its bit is 1 */
  tfm_stream *stream;      /* moved on by each draw, also if only one token is left; NULL: nothing is sampled */
  int64_t n_top;           /* -1: no log-probabilities are wanted, not even that of the choice */
  tfm_best_token *top;     /* [n_top]: the likeliest tokens by the logits as given, with log-probabilities in place of
                              logits, in the order of tfm_best_call.best */
} tfm_choice_row;

typedef struct tfm_choice {
  int32_t token;
  float logprob; /* by the logits as given, before any option; NaN: not wanted */
} tfm_choice;

/* Chooses the next token of a row: the options change the logits, then the token with the largest one is taken, or one
 * is drawn. Allocates nothing. TFM_E_INPUT: an option lies outside its range, logits are NaN or +inf, or every token is
 * forbidden; the stream is then as before. TFM_E_USAGE: something that is needed is a null pointer. *choice is set on
 * success only. */
TFM_API tfm_status tfm_choose(tfm_chooser *chooser, const tfm_choice_row *row, tfm_choice *choice, tfm_error *error);

#ifdef __cplusplus
}
#endif
#endif

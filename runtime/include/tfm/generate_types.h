/* tfm/generate_types.h: the types that generate.h, decode.h and the headers of compiled models that write share. C99 and
 * C++.
 *
 * The text between the guards is also pasted into generated headers, which stand alone; whichever comes first wins. */
#ifndef TFM_GENERATE_TYPES_H
#define TFM_GENERATE_TYPES_H

#include <stddef.h>
#include <stdint.h>

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
  /* Called for each row before its next token is chosen, after all that the options above do to the scores: it may change
   * them (log probabilities in beam search); -inf forbids a token. `tokens` is the whole row. */
  void (*on_scores)(void *user, int64_t item, const int32_t *tokens, int64_t length, float *scores);
  void *on_scores_user;
  int32_t return_token_scores; /* 1: tfm_generated.token_scores */
} tfm_generate_options;

typedef struct tfm_generated {
  int64_t n, width;   /* n: items * num_return_sequences, item by item, the best first */
  int32_t *sequences; /* [n][width], start included, padded on the right */
  int64_t *lengths;   /* without that padding */
  float *scores;      /* [n] of beam search; NULL otherwise */
  int64_t n_tokens;   /* of these, the tokens that stand in no prompt */
  /* [n][width], if asked for: the log of the probability that each token had among those it was chosen from, after all
   * that the options do to scores (in beam search what was added for it); 0 where nothing was chosen. NULL otherwise. */
  float *token_scores;
} tfm_generated;

typedef struct tfm_decoder_row { /* one row's part of a step of decoding */
  int64_t row;           /* its number */
  const int32_t *tokens; /* the new ones */
  int64_t n_tokens;      /* at least 1 */
} tfm_decoder_row;

#ifdef __cplusplus
}
#endif
#endif

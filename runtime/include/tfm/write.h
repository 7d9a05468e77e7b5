/* tfm/write.h: steps of many rows whose next tokens are chosen at once, with tokens that were guessed. C99 and C++.
 *
 * A row gets the tokens that a loop of tfm_decoder_step and tfm_choose would give it, one token at a time: whichever
 * other rows there are, however its prompt was cut into pieces, and whatever was guessed, rightly or wrongly. */
#ifndef TFM_WRITE_H
#define TFM_WRITE_H

#include "tfm/decode.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tfm_write_row {
  tfm_decoder_row part; /* the last n_guesses of its tokens are guesses; `kept` is not read */
  int64_t n_guesses;    /* -1: a piece of a prompt; nothing is chosen, and the members below are not read */
  /* As of tfm_choose, with these differences: `tokens` and `length` are the whole row with what this step appends, its
   * guesses included; `logits` is set and cleared by the call; `allowed` is NULL or [1 + n_guesses][ceil(vocab / 32)],
   * `top` [1 + n_guesses][n_top]. `limit` is where the row ends: nothing is chosen beyond it, nor behind one of the
   * options' eos_token_ids. on_scores must be NULL. */
  tfm_choice_row choice;
  tfm_choice *chosen; /* [1 + n_guesses]: the guesses that were right, and one token more */
  int64_t n_chosen;
  tfm_status status;  /* TFM_OK, or the error of the choice number n_chosen, of this row alone */
  char message[128];  /* of that error; cut if longer */
} tfm_write_row;

/* Appends tokens to rows, chooses what follows each, and takes back the guesses behind the first wrong one: of its
 * chosen tokens the decoder then has all but the last, which is for the next step (if status is not TFM_OK, all of
 * them). A row with states whose guess was wrong has what it had before the call, so the next step must read the right
 * ones again: tfm_decoder_length says what it has. Rows are checked and computed as by tfm_decoder_step, and chosen by
 * the decoder's threads. `choosers` has one for each thread (tfm_decoder_threads), of the decoder's vocabulary.
 * Allocates nothing but the room for logits: at the first call after a begin or open, and when a call wants more of
 * them than the limits say (step_kept).
 *
 * After an error of the whole call no row, stream or result has changed: TFM_E_INPUT, TFM_E_USAGE, TFM_E_CANCELLED,
 * and TFM_E_NOMEM, which is found before anything is computed. */
TFM_API tfm_status tfm_decoder_write(tfm_decoder *decoder, tfm_chooser *const *choosers, int64_t n, tfm_write_row *rows,
                                     tfm_error *error);

#ifdef __cplusplus
}
#endif
#endif

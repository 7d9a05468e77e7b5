/* The rows of tokens of a decoder. See rows.c. */
#ifndef TFM_RUNTIME_ROWS_H
#define TFM_RUNTIME_ROWS_H

#include "decode/decoder_state.h"

/* Room for so many rows of this length at most. */
tfm_status rows_reserve(tfm_decoder *decoder, int64_t most, int64_t length, tfm_error *error);
/* Gives each row its two lists of pages, its own and that of the spare row. No row exists afterwards. */
void rows_place(tfm_decoder *decoder, float **lists);
/* Removes all rows. */
void rows_forget(tfm_decoder *decoder);
/* Refuses a row that does not exist. */
tfm_status rows_check(const tfm_decoder *decoder, int64_t row, tfm_error *error);
/* Refuses a call that names a row twice, too. On success no row is marked. */
tfm_status rows_check_call(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, tfm_error *error);
/* After a step: on success the row has its new tokens and caches, else it is as it was. */
void rows_finish(tfm_decoder *decoder, DecoderRow *row, int64_t n_tokens, bool succeeded);
bool rows_read_item(const tfm_decoder *decoder, int64_t item); /* whether a row reads it */

#endif

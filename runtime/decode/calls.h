/* Steps of a decoder. See calls.c. */
#ifndef TFM_RUNTIME_CALLS_H
#define TFM_RUNTIME_CALLS_H

#include "decode/decoder_state.h"

/* The limits of calls, before any group is reserved. */
void calls_begin(tfm_decoder *decoder, int64_t most_rows, int64_t most_kept);
tfm_status calls_reserve(tfm_decoder *decoder, tfm_error *error); /* the arrays of a call */
/* Row `row` of a call of tfm_generate gets these tokens: calls.model_rows. */
void calls_continue_row(tfm_decoder *decoder, int64_t row, const int32_t *tokens, int64_t n, int64_t kept);
/* Room for a tfm_decoder_write of n rows with `kept` rows of logits, or what the limits allow if that is more: the rows
 * in calls.written, and *logits. */
tfm_status calls_reserve_writing(tfm_decoder *decoder, int64_t n, int64_t kept, float **logits, tfm_error *error);
/* Row `row` of that call gets these tokens: calls.written. */
void calls_write_row(tfm_decoder *decoder, int64_t row, const tfm_decoder_row *part, int64_t kept);
/* A step that gives the best tokens after the last token of each row. The decoder must have a consumer. */
tfm_status decoder_step_best(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, const tfm_best_call *best,
                             tfm_error *error);

#endif

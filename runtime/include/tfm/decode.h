/* tfm/decode.h: writing with a model in its incremental form: what earlier tokens gave is kept, not computed anew. C99.
 *
 * A decoder holds rows of tokens. A row reads one source (an item of the batch that tfm_decoder_begin was given) and knows
 * what it computed for each of its positions. Rows that continue the same row share what they have in common. Scores are
 * the same bits as those of the whole model run on the whole row, however the row was cut into steps and whichever
 * other rows were computed with it. One thread at a time may use a decoder. */
#ifndef TFM_DECODE_H
#define TFM_DECODE_H

#include "tfm/generate.h"
#include "tfm/program.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TFM_DECODER_MOST = 1 << 24 }; /* rows, and tokens of a row, that a decoder can have room for */

typedef struct tfm_decoder tfm_decoder;

/* `decoding`, the packed weights of its two programs (64-byte aligned; the same pointer if they share them; NULL for no
 * source program) must outlive the decoder. Both programs work with the same threads. */
TFM_API tfm_status tfm_decoder_create(const tfm_decoding *decoding, const void *encoder_weights, const void *step_weights,
                                      const tfm_context_options *options, tfm_decoder **decoder, tfm_error *error);
TFM_API void tfm_decoder_destroy(tfm_decoder *decoder); /* NULL is ignored */

/* Forgets all rows, computes what depends on the sources alone, and makes room: `max_rows` rows of `max_length` tokens;
 * until the next begin nothing within them is allocated, as long as a step asks for one score per row, or 16 in all. Long
 * rows take memory when they are there. `inputs` are those of the source program, in its order (NULL if there is none).
 * There are no rows after it. */
TFM_API tfm_status tfm_decoder_begin(tfm_decoder *decoder, const tfm_value *inputs, int64_t max_rows, int64_t max_length,
                                     tfm_error *error);
/* The same for sources of different sizes: lengths[i][item] is what size i of the source program is for the item, at most
 * what it is in the inputs; lengths[i] NULL: it is that for all. Only ragged sizes may have lengths. What stands in the
 * inputs behind them is never read, and each item is computed as if it were alone. `lengths` NULL: tfm_decoder_begin. */
TFM_API tfm_status tfm_decoder_begin_ragged(tfm_decoder *decoder, const tfm_value *inputs, const int64_t *const *lengths,
                                            int64_t max_rows, int64_t max_length, tfm_error *error);
/* A new, empty row that reads source `item`; *row is its number, which stays the same until it leaves. */
TFM_API tfm_status tfm_decoder_join(tfm_decoder *decoder, int64_t item, int64_t *row, tfm_error *error);
TFM_API tfm_status tfm_decoder_leave(tfm_decoder *decoder, int64_t row, tfm_error *error);
/* Rows 0 to n - 1 become copies of the rows parents[0] to parents[n - 1] as they were before; others leave. */
TFM_API tfm_status tfm_decoder_reorder(tfm_decoder *decoder, int64_t n, const int64_t *parents, tfm_error *error);
/* The row forgets its tokens from `length` on. */
TFM_API tfm_status tfm_decoder_truncate(tfm_decoder *decoder, int64_t row, int64_t length, tfm_error *error);
/* Appends tokens to rows, each row at most once, any number of tokens each. scores[i]: after each of the last `kept`
 * tokens of rows[i] the scores of the next, [n][kept][vocab]; logsumexp[n][kept]. Both may be NULL. All rows are
 * computed together, whatever their lengths; none depends on the others. On an error no row has changed. */
TFM_API tfm_status tfm_decoder_step(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, int64_t kept,
                                    float *scores, float *logsumexp, tfm_error *error);
/* Ends the step or begin that is under way, from any thread or signal handler: it returns TFM_E_CANCELLED, no row has
 * changed. One that already writes its last outputs goes on to its end and succeeds. */
TFM_API void tfm_decoder_cancel(tfm_decoder *decoder);
TFM_API int64_t tfm_decoder_length(const tfm_decoder *decoder, int64_t row); /* tokens; -1: there is no such row */
/* Of workspaces, of what rows of different lengths need to go together, and of the caches that were reserved. */
TFM_API uint64_t tfm_decoder_bytes(const tfm_decoder *decoder);
TFM_API int64_t tfm_decoder_items(const tfm_decoder *decoder);  /* sources of the last begin; 1 if there is no source */

/* max_length for tfm_decoder_begin: the longest row that tfm_generate can make with these options of one that starts with so
 * many tokens. The options need not be valid: tfm_generate says so. */
TFM_API int64_t tfm_decoder_longest_row(const tfm_generate_options *options, int64_t start);

/* For tfm_generate: a model that continues the decoder's rows. tfm_decoder_begin comes first. */
TFM_API tfm_generate_model tfm_decoder_model(tfm_decoder *decoder);

/* --- Models from libraries ----------------------------------------------------------------------------------------- */

/* NULL: the model is not incremental. */
TFM_API const tfm_decoding *tfm_model_decoding(const tfm_model *model);
/* A decoder for a model that is; the model must outlive it. */
TFM_API tfm_status tfm_model_decoder(tfm_model *model, const tfm_context_options *options, tfm_decoder **decoder,
                                     tfm_error *error);

#ifdef __cplusplus
}
#endif
#endif

/* tfm/decode.h: decoding with the incremental form of a model: results of earlier tokens are cached. C99 and C++.
 *
 * A decoder holds rows of tokens. A row reads one source (an item of the batch that was given to tfm_decoder_begin)
 * and has caches of what was computed for each of its positions. Rows that continue the same row share the pages of
 * their common beginning. Logits have the same bits as those of the whole model run on the whole row, however the row
 * was cut into steps and whichever other rows were computed with it. One thread at a time may use a decoder; only
 * tfm_decoder_cancel may be called while another function works with it. Errors are reported as in tfm/tfm.h. */
#ifndef TFM_DECODE_H
#define TFM_DECODE_H

#include "tfm/generate.h"
#include "tfm/abi/program.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TFM_DECODER_MOST = 1 << 24 }; /* the most rows, and the most tokens of a row, that a decoder can have room for */

typedef struct tfm_decoder tfm_decoder;

/* Creates a decoder. `decoding` and the packed weights of its two programs must outlive it; the weights are aligned to
 * 64 bytes, and are the same pointer where the programs share them (encoder_weights NULL: there is no encoder
 * program). Both programs work with the same threads. The caller owns *decoder, which is NULL after a failure. */
TFM_API tfm_status tfm_decoder_create(const tfm_decoding *decoding, const void *encoder_weights,
                                      const void *step_weights, const tfm_context_options *options,
                                      tfm_decoder **decoder, tfm_error *error);
TFM_API void tfm_decoder_destroy(tfm_decoder *decoder); /* NULL is ignored */

/* Begins a batch: removes all rows, runs the encoder program on the sources, and makes room for `max_rows` rows of
 * `max_length` tokens. Until the next begin, steps within these numbers allocate nothing, as long as a step asks for
 * the logits after one token of each row, or after 16 tokens in all. Pages of long rows are address space that takes
 * memory when it is written. `inputs` are those of the encoder program in its order (NULL if there is none), are not
 * kept, and may be freed afterwards. A batch begins without rows. */
TFM_API tfm_status tfm_decoder_begin(tfm_decoder *decoder, const tfm_value *inputs, int64_t max_rows,
                                     int64_t max_length, tfm_error *error);
/* The same for sources of different sizes: lengths[i][item] is the value that size i of the encoder program has for the
 * item, at most its value in the inputs; lengths[i] NULL: all items have the value of the inputs. Only ragged sizes may
 * have lengths. What the inputs hold beyond the lengths is never read, and each item is computed as if it were alone.
 * `lengths` NULL: as tfm_decoder_begin. An error that concerns one item names it. */
TFM_API tfm_status tfm_decoder_begin_ragged(tfm_decoder *decoder, const tfm_value *inputs,
                                            const int64_t *const *lengths, int64_t max_rows, int64_t max_length,
                                            tfm_error *error);

/* --- Sources that come and go --- */

typedef struct tfm_decoder_limits { /* what there may be at a time */
  size_t struct_size;  /* sizeof of the caller's struct; 0: of this one */
  int64_t rows, length;         /* rows, and tokens of one: at least 1 */
  int64_t step_rows, step_kept; /* rows of one step, and rows of logits that it gives without allocating; 0: `rows` */
  uint64_t cache_bytes;         /* of the pages and states of all rows; 0: enough for all of them at full length */
  int64_t items;                /* sources; not read without an encoder program, or if it does not count its sources */
  const int64_t *source_sizes;  /* [sizes of the encoder program]: the largest value of each. What counts the sources is
                                   not read. NULL: there is no encoder program */
} tfm_decoder_limits;
/* Begins without rows and without sources. Afterwards only tfm_decoder_add_source allocates, as long as steps stay
 * within the limits. TFM_E_INPUT: a limit is out of its range, or the model's own checks fail for it; TFM_E_NOMEM. */
TFM_API tfm_status tfm_decoder_open(tfm_decoder *decoder, const tfm_decoder_limits *limits, tfm_error *error);
/* Runs the encoder program on more sources, while rows of others stay as they are: arguments as for
 * tfm_decoder_begin_ragged. Their items are numbered from *first_item on; numbers of dropped items are used again.
 * TFM_E_INPUT: a size is beyond the limits, or there is no room for so many items in a row. TFM_E_USAGE: the model has
 * no encoder program. After an error nothing has changed. */
TFM_API tfm_status tfm_decoder_add_source(tfm_decoder *decoder, const tfm_value *inputs, const int64_t *const *lengths,
                                          int64_t *first_item, tfm_error *error);
/* Forgets a source. Its memory is used again once all sources that were added with it are gone. TFM_E_INPUT: there is
 * no such item, or a row reads it. */
TFM_API tfm_status tfm_decoder_drop_source(tfm_decoder *decoder, int64_t item, tfm_error *error);
/* Pages that the caches of a row of so many tokens take; *left (which may be NULL): pages that are free. With
 * cache_bytes a step whose new tokens need more than that is refused with TFM_E_NOMEM, before anything is computed.
 * Rows that continue the same row share pages. */
TFM_API int64_t tfm_decoder_pages(const tfm_decoder *decoder, int64_t tokens, int64_t *left);

/* --- Rows --- */

/* Adds an empty row that reads source `item`. *row is its number, which stays the same until the row leaves or the
 * rows are reordered. TFM_E_INPUT: there is no such item, or no room for another row. */
TFM_API tfm_status tfm_decoder_join(tfm_decoder *decoder, int64_t item, int64_t *row, tfm_error *error);
/* Removes a row and gives its pages back. */
TFM_API tfm_status tfm_decoder_leave(tfm_decoder *decoder, int64_t row, tfm_error *error);
/* Adds a row that is a copy of `row`, with its tokens and its source; all other rows stay. *copy is its number. The two
 * share pages: a page is copied when one of them is extended within it. TFM_E_INPUT: there is no such row, or no room
 * for another one. */
TFM_API tfm_status tfm_decoder_fork(tfm_decoder *decoder, int64_t row, int64_t *copy, tfm_error *error);
/* Rows 0 to n - 1 become copies of the rows parents[0] to parents[n - 1] as they were before the call; all others
 * leave. Copies share pages, so that nothing is copied until a row is extended. */
TFM_API tfm_status tfm_decoder_reorder(tfm_decoder *decoder, int64_t n, const int64_t *parents, tfm_error *error);
/* Removes the row's tokens from number `length` on; 0 <= length <= tfm_decoder_length. A row of a model with states
 * (recurrences, running sums, shifts) can be cut to 0, to its length, and to that before its last step, until the next
 * one begins; else TFM_E_INPUT. For other lengths keep a fork. */
TFM_API tfm_status tfm_decoder_truncate(tfm_decoder *decoder, int64_t row, int64_t length, tfm_error *error);
/* The greatest length up to `length` to which tfm_decoder_truncate can cut the row; -1: there is no such row, or length
 * is negative. */
TFM_API int64_t tfm_decoder_keeps(const tfm_decoder *decoder, int64_t row, int64_t length);
/* Appends tokens to rows: each row at most once, with any number of tokens. logits[n][kept][vocab] gets the logits of
 * the token that follows each of the last `kept` tokens of rows[i], logsumexp[n][kept] their logsumexp; both may be
 * NULL, and `kept` is at most the number of tokens of each row. A row may have a number of its own (rows[i].kept): the
 * logits of the rows then follow one another without gaps. All rows are computed together, whatever their
 * lengths; none depends on the others. After an error no row has changed. */
TFM_API tfm_status tfm_decoder_step(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, int64_t kept,
                                    float *logits, float *logsumexp, tfm_error *error);
/* Ends the step or begin that is under way, from any thread or signal handler: it returns TFM_E_CANCELLED, and no row
 * has changed. A call that already writes its last outputs goes on to its end and succeeds. */
TFM_API void tfm_decoder_cancel(tfm_decoder *decoder);
/* Tokens of the row; -1: there is no such row. */
TFM_API int64_t tfm_decoder_length(const tfm_decoder *decoder, int64_t row);
/* Bytes of the workspaces, of the contexts of lockstep runs, and of the room reserved for caches. */
TFM_API uint64_t tfm_decoder_bytes(const tfm_decoder *decoder);
/* tfm_context_threads of the step program, and tfm_context_profile: `nanoseconds` has a number for each of its steps.
 */
TFM_API int32_t tfm_decoder_threads(const tfm_decoder *decoder);
TFM_API void tfm_decoder_profile(tfm_decoder *decoder, uint64_t *nanoseconds);
/* Sources that there are; 1 if the model has none. */
TFM_API int64_t tfm_decoder_items(const tfm_decoder *decoder);

/* max_length for tfm_decoder_begin: the length of the longest row that tfm_generate can make with these options from a
 * prompt of `start` tokens. The options need not be valid: tfm_generate refuses those that are not. */
TFM_API int64_t tfm_decoder_longest_row(const tfm_generate_options *options, int64_t start);

/* The decoder as the model of tfm_generate, which adds and reorders its rows. The caller must begin a batch first, and
 * must keep the decoder as long as the model is used. */
TFM_API tfm_generate_model tfm_decoder_model(tfm_decoder *decoder);

/* --- Models from libraries --- */

/* The two programs of the incremental form; they belong to the model. NULL: the model has no such form. */
TFM_API const tfm_decoding *tfm_model_decoding(const tfm_model *model);
/* Creates a decoder for a model that has an incremental form (else TFM_E_USAGE). The model must outlive it. */
TFM_API tfm_status tfm_model_decoder(tfm_model *model, const tfm_context_options *options, tfm_decoder **decoder,
                                     tfm_error *error);

#ifdef __cplusplus
}
#endif
#endif

/* Memory of a decoder, and what its parts share: blocks that grow, the sizes of a run, errors. The lowest file of the
 * decoder: it calls none of the others. */
#ifndef TFM_RUNTIME_DECODER_MEMORY_H
#define TFM_RUNTIME_DECODER_MEMORY_H

#include "decode/decoder_state.h"
#include "machine/tuning.h"

/* Makes a block at least `bytes` long; its contents are lost. False: no memory. */
bool decoder_reserve_block(const tfm_decoder *decoder, DecoderBlock *block, int64_t bytes);
void decoder_release_block(const tfm_decoder *decoder, DecoderBlock *block);
/* Bytes of an input or an output of a program for the dims that its context has. */
int64_t decoder_input_bytes(const tfm_context *context, uint32_t input);
int64_t decoder_output_bytes(const tfm_context *context, uint32_t output);
/* The error with the item's number in front of its message. */
tfm_status decoder_name_item(tfm_status status, int64_t item, tfm_error *error);
/* Refuses a decoder that has not begun. */
tfm_status decoder_check_begun(const tfm_decoder *decoder, tfm_error *error);

/* New tokens of each row in a run of n rows, at most. */
static inline int64_t decoder_chunk(int64_t n) { return greatest_of(1, RUN_TOKENS / n); }

/* The sizes in the order of the step program's symbols, until the next call. */
const int64_t *decoder_set_sizes(tfm_decoder *decoder, const RunSizes *sizes);
/* Makes room in the step's context for the runs of the group, and finds how long its rows can be: at most `length`. */
tfm_status decoder_reserve_group(tfm_decoder *decoder, const SourceGroup *group, int64_t length, int64_t *longest,
                                 tfm_error *error);

#endif

/* The sources of a decoder. See sources.c and source_batch.c. */
#ifndef TFM_RUNTIME_SOURCES_H
#define TFM_RUNTIME_SOURCES_H

#include "decode/decoder_state.h"

/* What tfm_decoder_begin and tfm_decoder_add_source are called with. */
typedef struct SourceInputs {
  const tfm_value *given;
  const int64_t *const *lengths; /* [sizes of the encoder program][items]; NULL: all items have all of it */
} SourceInputs;
/* Removes all sources and makes room for so many, of at most these sizes (NULL: any). */
tfm_status sources_reserve(tfm_decoder *decoder, int64_t most, const int64_t *sizes, tfm_error *error);
/* Room for the items of the only batch. */
tfm_status sources_make_room(tfm_decoder *decoder, int64_t most, tfm_error *error);
void sources_destroy(tfm_decoder *decoder);
/* A batch whose groups are formed, whose items were checked, and that has room for what the encoder program computes of
 * them; it belongs to nobody yet. */
tfm_status sources_bind(tfm_decoder *decoder, const SourceInputs *inputs, SourceBatch **batch, tfm_error *error);
void sources_give_up(tfm_decoder *decoder, SourceBatch *batch); /* one that sources_run did not take */
typedef struct SourceMeasure {
  int64_t length;            /* of rows, at most */
  bool is_added, are_ragged; /* is_added: room was made before; are_ragged: an error names the first item of a group */
} SourceMeasure;
/* Makes room for the runs of each group, and finds how long its rows can be. */
tfm_status sources_measure(tfm_decoder *decoder, SourceBatch *batch, const SourceMeasure *measure, int64_t *longest,
                           tfm_error *error);
/* The same for the limits of the decoder. */
tfm_status sources_measure_limits(tfm_decoder *decoder, int64_t length, int64_t *longest, tfm_error *error);
/* Finds numbers for the items of the batch. */
tfm_status sources_check_room(const tfm_decoder *decoder, SourceBatch *batch, tfm_error *error);
/* Runs the encoder program for the batch and fills the pages of its items, which are the decoder's from then on. */
tfm_status sources_run(tfm_decoder *decoder, SourceBatch *batch, const SourceInputs *inputs, tfm_error *error);
/* *found: the item that a row which names `item` reads. */
tfm_status sources_find(const tfm_decoder *decoder, int64_t item, int64_t *found, tfm_error *error);
void sources_drop(tfm_decoder *decoder, int64_t item); /* that no row reads */
uint64_t sources_bytes(const tfm_decoder *decoder);

// ---- source_batch.c ----

tfm_status batch_bind(tfm_decoder *decoder, SourceBatch *batch, const SourceInputs *inputs, tfm_error *error);
tfm_status batch_run(tfm_decoder *decoder, SourceBatch *batch, const SourceInputs *inputs, tfm_error *error);

#endif

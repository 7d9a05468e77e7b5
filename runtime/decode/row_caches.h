/* The memory of what rows computed. See row_caches.c. */
#ifndef TFM_RUNTIME_ROW_CACHES_H
#define TFM_RUNTIME_ROW_CACHES_H

#include "decode/decoder_state.h"

typedef struct CacheSizes {
  int64_t longest, flat_bytes; /* tokens of a row; bytes of its flat caches, -1: too many */
  uint64_t cache_bytes;        /* of pages and of states; 0: for all rows at their longest */
} CacheSizes;
/* Memory for the caches of all rows. *lists: room for the lists of their pages. */
tfm_status caches_reserve(tfm_decoder *decoder, const CacheSizes *sizes, float ***lists, tfm_error *error);
void caches_copy_row(tfm_decoder *decoder, DecoderRow *row, const DecoderRow *from);
/* Keeps the first `length` tokens; a row of 0 has no memory. Refused: a length at which states are gone. */
tfm_status caches_cut_row(tfm_decoder *decoder, DecoderRow *row, int64_t length, tfm_error *error);
/* The greatest length up to this one to which the row can be cut. */
int64_t caches_keep(const tfm_decoder *decoder, const DecoderRow *row, int64_t length);
void caches_forget_before(tfm_decoder *decoder, DecoderRow *row); /* a step begins: its block may be needed */
/* Pages for the new tokens of all rows of a step. TFM_E_NOMEM: there are not enough, and nothing has changed. */
tfm_status caches_extend(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, tfm_error *error);
void caches_take_next(tfm_decoder *decoder, DecoderRow *row); /* a block for what its flat caches become */
/* The caches of the row are those after a step, or what they were before. */
void caches_finish_row(tfm_decoder *decoder, DecoderRow *row, bool succeeded);

#endif

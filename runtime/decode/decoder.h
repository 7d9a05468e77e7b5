/* The decoder: rows of tokens over a tfm_decoding, the memory of what they computed, and its two contexts.
 *
 * It has parts, each with the file that writes it; everybody may read them:
 *   Rows      rows.c        the rows of tokens: they join, are copied, are cut short, leave
 *   Sources   sources.c     the items that rows read, and what the encoder program computed of them
 *   Caches    row_caches.c  the memory of the rows: pages of keys and values, and caches that are tensors
 *   Calls     calls.c       a step while it is under way: cut into runs of rows with the same number of positions
 *   Staging   staging.c     the tensors of a run that are put together from those of its rows
 *   Lockstep  lockstep.c    the contexts that execute several runs together
 *
 * decoder.c is the decoder's life: creating, beginning, destroying. It asks the parts to make their room; none of them
 * calls it. A part's members are assigned in its own file alone, which check_house.py holds. */
#ifndef TFM_RUNTIME_DECODER_H
#define TFM_RUNTIME_DECODER_H

#include "decode/loops/best_tokens.h"
#include "decode/calls.h"
#include "decode/lockstep.h"
#include "decode/row_caches.h"
#include "decode/rows.h"
#include "decode/sources.h"
#include "decode/staging.h"

struct tfm_decoder {
  const tfm_decoding *decoding;
  tfm_allocator allocator;
  size_t bytes; /* of the block that holds the decoder and the two arrays behind it */
  BestSearch best; /* if it has a step */
  tfm_context *source, *step; /* source: NULL if there is none; the threads are those of `step` */
  int64_t *symbols; /* scratch of decoder_set_sizes */
  bool begun;
  Rows rows;
  Sources sources;
  Caches caches;
  Calls calls;
  Staging staging;
  Lockstep lockstep;
};

/* What cancels these calls cancels those of the decoder. */
void decoder_stop_with(tfm_decoder *decoder, Stop *stop);
static inline bool decoder_has_rows(const tfm_decoder *decoder) { return decoder->decoding->rows != TFM_NONE; }
/* Sizes of the encoder program; 0 if there is none. */
static inline uint32_t source_sizes(const tfm_decoder *decoder) {
  return decoder->source ? decoder->source->program->n_symbols : 0;
}
/* An input of the step is the decoder input, a cache that is a tensor, or an output of the encoder program. */
static inline bool input_is_flat_cache(const tfm_decoding *decoding, uint32_t input) {
  return input != decoding->decoder_input && decoding->inputs[input].is_cache;
}
static inline bool input_is_of_encoder(const tfm_decoding *decoding, uint32_t input) {
  return input != decoding->decoder_input && !decoding->inputs[input].is_cache;
}
static inline const SourceGroup *group_of_row(const tfm_decoder *decoder, const DecoderRow *row) {
  return decoder->sources.item[row->item].group;
}

#endif

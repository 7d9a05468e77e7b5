/* ItemDecoders: a decoder for each item of a batch, for models whose sources have lengths of their own.
 *
 * In: a decoding whose sizes are ordinary ones, the inputs of all items. Out: what the decoding loop of the runtime calls,
 * which hands each row to the decoder of its item. An item is computed as if it were alone, as everywhere with ragged
 * sizes. */
#ifndef TFM_DRIVER_ITEM_DECODERS_H
#define TFM_DRIVER_ITEM_DECODERS_H

#include "driver/scorer.h"
#include "tfm/decode.h"

typedef struct ItemDecoders ItemDecoders;

typedef struct ItemDecodersNeed {
  const Graph *sources; /* the source graph with its ragged sizes; nothing is computed with it */
  const tfm_decoding *decoding;
  const void *packed; /* the weights of both programs */
  int64_t max_rows, max_length; /* of each item */
} ItemDecodersNeed;

/* NULL after an error. */
ItemDecoders *item_decoders_begin(const Scorer *scorer, const ItemDecodersNeed *need);
tfm_generate_model item_decoders_model(ItemDecoders *decoders);
void item_decoders_destroy(ItemDecoders *decoders); /* NULL is ignored */

#endif

/* What decoding takes of memory, as far as the plans tell: weights, and the pages of caches.
 *
 * In: the plans of the incremental form. Out: bytes, as the runtime reserves them. Workspaces, and caches that are tensors,
 * depend on more than the model; tfm_decoder_bytes is the sum once a decoder has begun. */
#ifndef TFM_DRIVER_DECODING_MEMORY_H
#define TFM_DRIVER_DECODING_MEMORY_H

#include "graph/graph.h"
#include "plan/decoding.h"

/* Of the caches of one row of `length` tokens, or of one source of `length` positions: whole pages. */
int64_t decoding_row_bytes(const tfm_decoding *decoding, int64_t length);
int64_t decoding_source_bytes(const tfm_decoding *decoding, int64_t length);

/* Lines for --report. `graph`: the model, whose generate block may have a max_length. */
void decoding_memory_print(StrBuf *out, const tfm_decoding *decoding, const Graph *graph);

#endif

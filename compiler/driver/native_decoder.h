/* NativeDecoder: a model that writes, in its incremental form, compiled in this process or part of a library.
 *
 * In: the graph as it was elaborated, the weights. Out: what the decoding loop of the runtime calls. There is none for
 * models that are not incremental; the whole forward serves these (scorer.h). */
#ifndef TFM_DRIVER_NATIVE_DECODER_H
#define TFM_DRIVER_NATIVE_DECODER_H

#include "driver/scorer.h"
#include "tfm/decode.h"

typedef struct NativeDecoder NativeDecoder;

/* The incremental form is session->derived, or the library's. NULL after an error, or, without one, if there is none. */
NativeDecoder *native_decoder_create(Session *session, Graph *graph, WeightSource *weights);
void native_decoder_destroy(NativeDecoder *decoder); /* NULL is ignored */
/* Computes what depends on the scorer's inputs alone and makes room. False after an error. */
bool native_decoder_begin(NativeDecoder *decoder, const Scorer *scorer, int64_t max_rows, int64_t max_length);
tfm_generate_model native_decoder_model(NativeDecoder *decoder);

#endif

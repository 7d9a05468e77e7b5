/* NativeDecoder: a model that writes, in its incremental form, compiled in this process or part of a library.
 *
 * In: the graph as it was elaborated, the weights. Out: what the decoding loop of the runtime calls. There is none for
 * models that are not incremental; the whole forward serves these (scorer.h). */
#ifndef TFM_ENGINES_NATIVE_DECODER_H
#define TFM_ENGINES_NATIVE_DECODER_H

#include "engines/scorer.h"
#include "tfm/decode.h"

typedef struct NativeDecoder NativeDecoder;

/* The incremental form is settings->derived, or the library's. NULL after an error, or, without one, if there is
 * none. */
NativeDecoder *native_decoder_create(const EngineSettings *settings, Graph *graph, WeightSource *weights);
void native_decoder_destroy(NativeDecoder *decoder); /* NULL is ignored */
/* Computes what depends on the scorer's inputs alone and makes room. False after an error. */
bool native_decoder_begin(NativeDecoder *decoder, const Scorer *scorer, int64_t max_rows, int64_t max_length);
tfm_generate_model native_decoder_model(NativeDecoder *decoder);

// ---- memory, as far as the plans tell ----

/* Of the caches of one row of `length` tokens, or of one source of `length` positions: whole pages. */
int64_t decoding_row_bytes(const tfm_decoding *decoding, int64_t length);
int64_t decoding_source_bytes(const tfm_decoding *decoding, int64_t length);

/* Lines for --report. `graph`: the model, whose generate block may have a max_length. */
void decoding_memory_print(StrBuf *out, const tfm_decoding *decoding, const Graph *graph);

#endif

/* NativeDecoder: a generative model in its incremental form, compiled in this process or part of a library.
 *
 * In: the graph as it was elaborated, the weights. Out: what the decoding loop of the runtime calls. Models that are
 * not incremental have none; for them the whole forward runs for each token (scorer.h). */
#ifndef TFM_ENGINES_NATIVE_DECODER_H
#define TFM_ENGINES_NATIVE_DECODER_H

#include "engines/scorer.h"
#include "tfm/decode.h"

typedef struct NativeDecoder NativeDecoder;

/* The incremental form is settings->derived, or that of the library. NULL after an error, or, without one, if the
 * model is not incremental. */
NativeDecoder *native_decoder_create(const EngineSettings *settings, Graph *graph, WeightSource *weights);
void native_decoder_destroy(NativeDecoder *decoder); /* NULL is ignored */
/* Runs the encoder on the scorer's inputs and reserves memory for max_rows rows of max_length tokens. False after an
 * error. */
bool native_decoder_begin(NativeDecoder *decoder, const Scorer *scorer, int64_t max_rows, int64_t max_length);
tfm_generate_model native_decoder_model(NativeDecoder *decoder);
const tfm_program *native_decoder_step(const NativeDecoder *decoder); /* the program of a step */
tfm_decoder *native_decoder_runtime(const NativeDecoder *decoder);    /* what the model works with */

// ---- memory, as far as the plans tell ----

/* Bytes of the caches of one row of `length` tokens, or of one source of `length` positions, in whole pages. */
int64_t decoding_row_bytes(const tfm_decoding *decoding, int64_t length);
int64_t decoding_source_bytes(const tfm_decoding *decoding, int64_t length);

/* Lines for --report. `graph`: the model, whose generate block may have a max_length. */
void decoding_memory_print(StrBuf *out, const tfm_decoding *decoding, const Graph *graph);

#endif

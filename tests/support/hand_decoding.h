/* A generative model made by hand in its incremental form, and the same numbers computed anew by plain loops.
 *
 * The logits of the token after position p: attention over the row's own tokens up to p, plus attention over the
 * tokens of the source that are not masked, plus something of the row's first token and of the token at p, which the
 * step caches as a tensor. Four heads of queries read two of keys and values. */
#ifndef TFM_TESTS_HAND_DECODING_H
#define TFM_TESTS_HAND_DECODING_H

#include "hand_program.h"

enum { WRITER_VOCAB = 32, WRITER_MOST = 600 /* tokens of a row */ };

typedef struct HandDecoding {
  HandProgram source, step;
  tfm_step_input inputs[8];
  uint32_t sizes[8], cache_encoded[8];
  tfm_decoding decoding;
} HandDecoding;

/* Fills `hand`. Token WRITER_VOCAB - 1 in a source or row has values that are NaN. */
void hand_writer(HandDecoding *hand);

typedef struct WriterSource { /* of one item */
  const int32_t *tokens;
  const uint8_t *masked;
  int64_t n;
} WriterSource;
/* The logits after the last of n tokens. */
void hand_writer_scores(const WriterSource *source, const int32_t *tokens, int64_t n, float *scores);

#endif

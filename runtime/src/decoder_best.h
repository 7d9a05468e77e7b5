/* A step whose caller wants no scores but the largest of each row.
 *
 * The product that gives the scores hands its tiles over while they are near; each thread keeps what is the largest for it,
 * so no matrix is written. Which thread had which tile makes no difference: of equal scores the lowest token is taken. */
#ifndef TFM_RUNTIME_DECODER_BEST_H
#define TFM_RUNTIME_DECODER_BEST_H

#include "context.h"
#include "tfm/generate.h"

typedef struct BestCall { /* as in tfm_generate_model.best */
  const uint64_t *apart;
  float *scores;
  tfm_best_token *best;
} BestCall;

typedef struct BestSearch {
  GemmConsumer consumer; /* the first member: it knows where the rest is */
  int64_t vocab;
  tfm_best_token *found; /* [threads][stride]: of each row of a run, by each thread */
  int64_t stride;
  const BestCall *call; /* of this run */
  const int64_t *members; /* which row of the call each row of the run is */
} BestSearch;

/* The step of decoding->step whose results, as they are, are the scores and nothing else in a run that does not want their
 * sums; TFM_NONE: there is none. */
uint32_t best_find_step(const tfm_decoding *decoding);
/* Sets the search up for a decoder whose context has `step`. */
void best_create(BestSearch *search, const tfm_decoding *decoding, uint32_t step);
/* Before and after a run of `rows` rows with as many threads as there may be. */
void best_begin(BestSearch *search, const BestCall *call, const int64_t *members, int64_t rows, int32_t threads);
void best_end(BestSearch *search, int64_t rows, int32_t threads);

#endif

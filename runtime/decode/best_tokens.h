/* A step whose caller wants no scores but the best of each row, and for beam search the log of the sum of all.
 *
 * The product that gives the scores hands its tiles over while they are near; each thread keeps what is best for it, so no
 * matrix is written. Which thread had which tile makes no difference: of equal scores the lowest token is taken, and sums
 * are those of units, whose columns are always the same, added in one order. */
#ifndef TFM_RUNTIME_DECODER_BEST_H
#define TFM_RUNTIME_DECODER_BEST_H

#include "context.h"
#include "layout.h"
#include "tfm/generate.h"

enum { MOST_BEST = 32 }; /* tokens of a row */

typedef struct BestSearch {
  GemmConsumer consumer; /* the first member: it knows where the rest is */
  const tfm_decoding *decoding;
  tfm_row_kernel exponentials; /* of a unit's rows: the sum of exp(score - most) */
  int64_t columns, units;      /* columns of a unit; units of a row */
  tfm_best_token *found;     /* [threads][rows][n_best]: of each row of a run, by each thread, the best first */
  int64_t stride;            /* rows that there is room for */
  float *most, *sums;        /* [rows][units]: the largest score, NaN if one is NaN or +inf; the sum */
  const tfm_best_call *call; /* of this run */
  const int64_t *members;    /* which row of the call each row of the run is */
} BestSearch;

/* Sets the search up for a decoder whose context has decoding->step; false: its scores can't be searched. They can if a
 * step's results, as they are, are the scores and nothing else in a run that does not want their sums, and the program
 * computes these as a largest score and a sum of exponentials. */
bool best_create(BestSearch *search, const tfm_decoding *decoding, const tfm_context *context);
/* Room for runs of at most so many rows; threads 0: none. */
void best_place(BestSearch *search, Layout *layout, int64_t rows, int32_t threads);
/* Before and after a run of `rows` rows with as many threads as there may be. */
void best_begin(BestSearch *search, const tfm_best_call *call, const int64_t *members, int64_t rows, int32_t threads);
void best_end(BestSearch *search, int64_t rows, int32_t threads);

#endif

/* The best tokens of each row in place of a matrix of logits, with the logsumexp of the row for beam search.
 *
 * In: tiles of logits, which the product hands over while they are still in cache. Out: what a tfm_best_call asks for.
 * Each thread keeps the best tokens that it saw, so no matrix is written: for a vocabulary of 50,000 that saves
 * writing and reading 200 kB per row. Which thread had which tile makes no difference: of equal logits the lowest
 * token wins, and sums are taken over units, whose columns are always the same, and added in one order. */
#ifndef TFM_RUNTIME_BEST_TOKENS_H
#define TFM_RUNTIME_BEST_TOKENS_H

#include "steps/walker.h"
#include "base/allocate.h"
#include "tfm/generate.h"

enum { MOST_BEST = 32 }; /* tokens of a row; an insertion into more would cost more than writing the logits */

typedef struct BestSearch {
  GemmConsumer consumer; /* the first member: it knows where the rest is */
  Consumed consumed;     /* the step that gives the logits; no panels: they cannot be searched */
  const tfm_decoding *decoding;
  tfm_row_kernel exponentials; /* of a unit's rows: the sum of exp(logit - most) */
  int64_t columns, units;      /* columns of a unit; units of a row */
  tfm_best_token *found;     /* [threads][rows][n_best]: of each row of a run, by each thread, the best first */
  int64_t stride;            /* rows that there is room for */
  float *most, *sums;        /* [rows][units]: the largest logit, NaN if one is NaN or +inf; the sum */
  const tfm_best_call *call; /* of this run */
  const int64_t *members;    /* which row of the call each row of the run is */
} BestSearch;

/* Sets the search up for a decoder whose context has decoding->step. False: the logits of this program cannot be
 * searched. They can if one step writes exactly the logits, no other step reads them except for their sums, and the
 * program computes these sums as a largest logit and a sum of exponentials. */
bool best_create(BestSearch *search, const tfm_decoding *decoding, const tfm_context *context);
/* Makes room for runs of at most `rows` rows by `threads` threads; threads 0: none. */
void best_place(BestSearch *search, Layout *layout, int64_t rows, int32_t threads);
/* Before and after a run of `rows` rows by at most `threads` threads. members[i] is the row of the call that row i of
 * the run is. After best_end the call holds the results of these rows. */
void best_begin(BestSearch *search, const tfm_best_call *call, const int64_t *members, int64_t rows, int32_t threads);
void best_end(BestSearch *search, int64_t rows, int32_t threads);
/* sums[row]: the logsumexp of each row of logits, with the bits that the search gives it. Between two runs. */
void best_logsumexp(BestSearch *search, const float *logits, int64_t rows, float *sums);

#endif

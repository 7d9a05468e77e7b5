/* Passes over the logits of one row: largest value, search, sum of exponentials.
 *
 * Plain C with vector types of gcc and clang, which compilers turn into vector code for any machine: 16 lanes,
 * combined in one fixed order, so that the numbers are the same everywhere. In: n logits, of which none is NaN or +inf
 * unless the function says so; -inf is allowed and stands for a token that is impossible. Nothing is allocated or
 * refused. A row is divided into blocks of ROW_BLOCK, whose largest logits (`bounds`) let searches skip most blocks. */
#ifndef TFM_RUNTIME_LOGIT_ROW_H
#define TFM_RUNTIME_LOGIT_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "machine/tuning.h"

static inline int64_t row_blocks(int64_t n) { return (n + ROW_BLOCK - 1) / ROW_BLOCK; }

/* How many words of 64 bits have a bit for each of n tokens. */
static inline int64_t row_words(int64_t n) { return (n + 63) / 64; }

/* bounds[b]: the largest logit of block b. False: a logit is NaN or +inf, and the bounds have no meaning. */
bool row_scan(const float *logits, int64_t n, float *bounds);
/* *most: the largest logit, -inf if there is none. False: a logit is NaN or +inf. */
bool row_peak(const float *logits, int64_t n, float *most);
/* The first token from `first` on whose logit is at least `least`; n: there is none. */
int64_t row_find(const float *logits, int64_t first, int64_t n, float least);
float row_max(const float *logits, int64_t n); /* -inf if there is none */
/* weights[i] = exp(logits[i] - most) for most >= all of them, in place if weights == logits; below exp(-85) it is 0.
 * Returns the sum, in double. */
double row_exp(const float *logits, int64_t n, float most, float *weights);
/* The sum alone: in another order than that of row_exp, so the two may differ in the last bits. */
double row_exp_sum(const float *logits, int64_t n, float most);

#endif

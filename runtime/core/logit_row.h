/* Passes over the scores of one row, in plain C that compilers turn into vector code: 16 lanes side by side, combined
 * in one order, so that the numbers are the same on every machine. No score is NaN or +inf unless it says so. */
#ifndef TFM_RUNTIME_LOGIT_ROW_H
#define TFM_RUNTIME_LOGIT_ROW_H

#include <stdbool.h>
#include <stdint.h>

enum { ROW_BLOCK = 128 }; /* scores that are passed over together */

static inline int64_t row_blocks(int64_t n) { return (n + ROW_BLOCK - 1) / ROW_BLOCK; }

/* Words of 64 bits that have a bit for each of n tokens. */
static inline int64_t row_words(int64_t n) { return (n + 63) / 64; }

/* The largest score of each block; false if a score is NaN or +inf. */
bool row_scan(const float *scores, int64_t n, float *bounds);
/* *most: the largest score, -inf if there is none; false if a score is NaN or +inf. */
bool row_peak(const float *scores, int64_t n, float *most);
/* The first place from `first` on whose score is at least `least`; n: there is none. */
int64_t row_find(const float *scores, int64_t first, int64_t n, float least);
float row_max(const float *scores, int64_t n); /* -inf if there is none */
/* exp(scores[i] - most), for most >= all of them; may be in place. Less than 1e-37 becomes 0. Returns the sum. */
double row_exp(const float *scores, int64_t n, float most, float *weights);
/* The sum without the weights. */
double row_exp_sum(const float *scores, int64_t n, float most);

#endif

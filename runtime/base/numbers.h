/* Small sums over sizes, which are int64_t and not negative. */
#ifndef TFM_RUNTIME_NUMBERS_H
#define TFM_RUNTIME_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

enum { ALIGNMENT = 64 }; /* bytes of a cache line: where blocks and what several threads write begin */

static inline int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t greatest_of(int64_t a, int64_t b) { return a > b ? a : b; }
static inline double lesser_of(double a, double b) { return b < a ? b : a; } /* a if b is NaN */
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

#endif

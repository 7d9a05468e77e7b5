/* Needed rows: which rows of a step's result must be computed, as runs of neighbours.
 *
 * In: the mask of a step (tfm_needed_rows). Out: its runs, from any row or from the n-th needed row on, so that threads
 * can share the needed rows evenly. Nothing is cached: reading the mask again is faster than reading a list of runs. */
#ifndef TFM_RUNTIME_NEEDED_ROWS_H
#define TFM_RUNTIME_NEEDED_ROWS_H

#include "context.h"

typedef struct NeededRows {
  const char *mask; /* NULL: all rows, and none of the functions below is for it */
  int64_t stride;   /* bytes from row to row */
  bool where, zeroed;
} NeededRows;

typedef struct NeededCursor { /* a place among the rows; zero: the first */
  int64_t row, before;        /* before: rows that are needed of those in front of it */
} NeededCursor;

/* Of a step whose mask has no gaps; `number`: what the step says is needed. */
NeededRows needed_rows_of(const tfm_context *context, const Operand *mask, uint32_t number);
/* The number of needed rows among the first `rows`. */
int64_t needed_count(const NeededRows *needed, int64_t rows);
/* The next run within [row, end) of rows that are needed, or, if `wanted` is false, of rows that are not: its length;
 * *first is its first row. */
int64_t needed_run(const NeededRows *needed, bool wanted, int64_t row, int64_t end, int64_t *first);
/* Moves the cursor to needed row number `number`, of `rows` rows. */
void needed_seek(const NeededRows *needed, NeededCursor *cursor, int64_t rows, int64_t number);
/* The next run of at most `most` needed rows. Moves the cursor behind it. */
int64_t needed_next(const NeededRows *needed, NeededCursor *cursor, int64_t rows, int64_t most, int64_t *first);

#endif

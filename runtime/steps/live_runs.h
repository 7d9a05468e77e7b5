/* Live rows: which rows of a step's result must be computed, as runs of neighbours.
 *
 * In: the mask of a step (tfm_live_rows). Out: its runs, from any row or from the n-th live row on, so that threads
 * can share the live rows evenly. Refuses nothing. Nothing is cached: reading the mask again is faster than reading a
 * list of runs. */
#ifndef TFM_RUNTIME_LIVE_RUNS_H
#define TFM_RUNTIME_LIVE_RUNS_H

#include "context/context.h"

typedef struct LiveRows {
  const char *mask; /* NULL: all rows, and none of the functions below is for it */
  int64_t stride;   /* bytes from row to row */
  bool where, zeroed;
  int64_t item; /* as in tfm_live_rows */
} LiveRows;

typedef struct LiveCursor { /* a position among the rows; zeroes: the first */
  int64_t row, before;      /* before: live rows in front of it */
} LiveCursor;

typedef struct RowShare { /* of a thread, among the rows of a step */
  int64_t first, end;      /* live rows [first, end), by their number */
  LiveCursor cursor;       /* with a mask: at live row number `first` */
  int64_t row, end_row;    /* rows [row, end_row) of all: those that are not live are its to clear */
} RowShare;

/* The live rows that a mask describes; `number`: the step's member `live`, not 0. */
static inline LiveRows live_rows_at(const tfm_context *context, uint32_t number, const char *mask, int64_t stride) {
  const tfm_live_rows *info = &context->program->live[number - 1];
  return (LiveRows){.mask = mask, .stride = stride, .where = info->where, .zeroed = info->zeroed,
                    .item = value_of(context, info->item)};
}
/* Whether n > 0 bytes, `stride` apart, are all true or all false, as `value` says. Without gaps they are compared with
 * one another, which costs next to nothing; bytes of true may differ, and then the answer is no. */
bool live_all(const char *bytes, int64_t stride, int64_t n, bool value);
/* Without a mask if all of `rows` are live. */
void live_unless_all(LiveRows *live, int64_t rows);
/* One past the last of `keys` keys that padding, a byte every `stride` bytes, does not leave out. */
static inline int64_t last_live_key(const char *padding, int64_t stride, int64_t keys, bool left_out) {
  while (keys > 0 && (padding[(keys - 1) * stride] != 0) == left_out) keys--;
  return keys;
}
/* The live rows of a step whose mask has no gaps; `number`: the step's member `live`. */
LiveRows live_rows_of(const tfm_context *context, const Operand *mask, uint32_t number);
/* The number of live rows among the first `rows`. */
int64_t live_count(const LiveRows *live, int64_t rows);
/* The length of the next run within [row, end) of rows that are live, or, if `wanted` is false, of rows that are not;
 * *first is its first row. 0: there is none. */
int64_t live_run(const LiveRows *live, bool wanted, int64_t row, int64_t end, int64_t *first);
typedef struct ClearJob { /* rows of a result, or a part of each */
  char *rows;
  int64_t stride, bytes; /* between rows; of a row */
  int64_t item;          /* rows of an item, of which those behind its last live row stay as they are; 0: none do */
} ClearJob;
/* Those of rows [row, end) that are not live become 0. */
void live_clear(const LiveRows *live, int64_t row, int64_t end, const ClearJob *job);
/* Moves the cursor to live row number `number` of `rows` rows. */
void live_seek(const LiveRows *live, LiveCursor *cursor, int64_t rows, int64_t number);
/* The next run of at most `most` live rows. Moves the cursor behind it. */
int64_t live_next(const LiveRows *live, LiveCursor *cursor, int64_t rows, int64_t most, int64_t *first);
/* The rows that a thread does of a step with so many; `live` may have no mask. */
RowShare live_share(const LiveRows *live, int64_t rows, int32_t thread, int32_t threads);

#endif

/* How memory that plan lays out itself lies, and what is read where it lies, because of time. No number here can
 * change a bit of a result. Private to plan/. */
#ifndef TFM_PLAN_COST_LAYOUT_H
#define TFM_PLAN_COST_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

/* Rows of 64 floats or more get a line (16 floats) of space between them. Without it, rows whose length is a power of
 * two would all begin in the same few sets of a cache, and a tile that walks down its rows would evict what it needs
 * next. Rows of 16 or more are rounded up to whole lines, so that each begins a line; shorter ones are not worth the
 * memory. */
enum {
  COST_LINE = 16,       /* floats of a line of the cache, and of space between rows */
  COST_PADDED_FROM = 64 /* floats of a row */
};

/* Returns the distance of rows of n floats. */
static inline int64_t cost_row_stride(int64_t n) {
  int64_t whole = (n + COST_LINE - 1) / COST_LINE * COST_LINE;
  return n >= COST_PADDED_FROM ? whole + COST_LINE : n >= COST_LINE ? whole : n;
}

/* The caller's rows have no such space. If they lie a multiple of 4,096 bytes apart (1,024 floats: 64 sets of 64-byte
 * lines, the L1 cache of every target), all rows of a tile would fall into one set, and a copy is cheaper. */
enum { COST_SAME_SET = 1024 };

/* Whether rows at this distance can be read where they lie. `is_callers`: the memory belongs to the caller, so its
 * layout is not ours to choose. */
static inline bool cost_may_stay(int64_t stride, bool is_callers) {
  return !is_callers || stride < COST_SAME_SET || stride % COST_SAME_SET != 0;
}

/* Columns of a state that a kernel walks together: each needs a register for what is read and two for sums. With 64 the
 * chains of sums hide behind each other where registers hold 16 floats and there are 32 of them; of their state 32 KB
 * stay in the L1 cache. */
static inline uint8_t cost_state_columns(uint32_t vector_floats, int64_t rows, int64_t columns) {
  enum { FEW = 32, MANY = 64, MOST_FLOATS = 8192 };
  return vector_floats >= COST_LINE && rows * MANY <= MOST_FLOATS && columns > FEW ? MANY : FEW;
}

/* The same of a single step, which takes its time for bytes: whole rows come faster than halves of them. A block is
 * walked for what its key reads, then for what is written, which needs two registers for each vector. */
static inline uint8_t cost_one_step_columns(uint32_t vector_floats, int64_t columns) {
  const int64_t most = vector_floats >= COST_LINE ? 128 : vector_floats >= COST_LINE / 2 ? 64 : 32;
  int64_t n = 32;
  while (n < most && n < columns) n *= 2;
  return (uint8_t)n;
}

/* Whether states of so many bytes, all that a step leaves of a row, are written past the caches. With those before the
 * step they fill a cache of the third level, so the next step reads them from memory anyway, and a line that is written
 * otherwise is read first. Smaller ones are near when they are read. */
static inline bool cost_states_pass_caches(int64_t bytes) {
  enum { FEWEST = 16 << 20 };
  return bytes >= FEWEST;
}

/* The same of a gradient's walks beside the state before each step, which take their time for bytes too, but read and
 * write in one walk, with three registers for each vector. */
static inline uint8_t cost_kept_columns(uint32_t vector_floats, int64_t rows, int64_t columns) {
  return vector_floats >= COST_LINE ? cost_one_step_columns(vector_floats, columns)
                                    : cost_state_columns(vector_floats, rows, columns);
}

/* A row kernel pays for every row it begins: addresses, and the part of the expression that is the same in all
 * columns. 64 columns, four vectors, are enough work to hide that. Longer rows stay as they are, because rows are what
 * threads share. */
enum { COST_SHORT_COLUMNS = 64 };

/* Whether rows of so few columns should be made longer by merging an axis into them. */
static inline bool cost_columns_are_short(int64_t columns) { return columns < COST_SHORT_COLUMNS; }

/* Products that read their factors where they lie. With rows side by side a square costs 64 shuffles (AVX-512), as much
 * as the FMAs of a tile of 16 columns for the same numbers, so it is for fewer columns, and not for so few rows or
 * steps that most of a square is empty. A kernel for a static number of rows has its results in so many registers. */
enum {
  COST_MOST_DIRECT_COLUMNS = 4,
  COST_LEAST_DIRECT_ROWS = 8,
  COST_LEAST_DIRECT_K = 16,
  COST_MOST_DIRECT_ROWS = 8,
  COST_MOST_PANELS_IN_PLACE = 4
};

#endif

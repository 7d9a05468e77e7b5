/* CodeCounts: what can be read off the assembly of a kernel.
 *
 * In: the assembly of one function as LLVM prints it, with its comments about loops and spills, for x86-64. Out: how
 * often registers are spilled, and each loop with what one turn of it does. Refuses nothing: what has no comment is
 * counted for no loop. Private to explore/. */
#ifndef TFM_EXPLORE_CODE_COUNTS_H
#define TFM_EXPLORE_CODE_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"

typedef struct LoopCounts {
  uint32_t line, depth; /* of its header, from 1 */
  bool is_inner;        /* no loop is in it */
  uint32_t fma, loads, stores, broadcasts, prefetches, spills; /* of its own blocks, not of loops in it */
} LoopCounts;

typedef struct CodeCounts {
  uint32_t spills, reloads;
  VEC(LoopCounts) loops; /* in the order of their headers */
} CodeCounts;

CodeCounts code_counts(Arena *arena, const char *text);

#endif

/* What must hold of `tfmc fmt` for any bytes, for the fuzz target and the test that share it. */
#ifndef TFM_TESTS_FORMAT_CHECK_H
#define TFM_TESTS_FORMAT_CHECK_H

#include <stddef.h>

#include "base/arena.h"

/* NULL, or what does not hold: a text with faults has messages and is not laid out; another one keeps its tokens, its
 * comments between the same tokens, and its tree; laid out again it is the same; the changes of its lines lead from
 * one to the other. `*laid_out` counts texts that parse. */
const char *format_fault(Arena *arena, const char *bytes, size_t size, unsigned *laid_out);

#endif

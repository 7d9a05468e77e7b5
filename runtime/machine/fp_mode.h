/* The floating-point mode of the runtime: round to nearest, subnormal numbers kept, no traps. The caller's mode is put
 * back when the runtime returns (fp_mode_leave). In steps of training subnormal numbers are 0 (fp_mode_enter_as): what
 * is left of a softmax that is sure of itself makes many of them, each of which costs a processor a hundred
 * operations. */
#ifndef TFM_RUNTIME_FP_MODE_H
#define TFM_RUNTIME_FP_MODE_H

#include "machine/machine.h"

static inline uint64_t fp_mode_enter(void) { return fp_mode_enter_as(false); }

#endif

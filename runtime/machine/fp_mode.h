/* The floating-point mode of the runtime: round to nearest, subnormal numbers kept, no traps. The caller's mode is put
 * back when the runtime returns (fp_mode_leave). A mode in which subnormal numbers are 0 is never entered: families of
 * CPUs flush by different rules, or not at all. What makes many of them in training drops them itself
 * (KernelSpec.drops_small, train/vectors). */
#ifndef TFM_RUNTIME_FP_MODE_H
#define TFM_RUNTIME_FP_MODE_H

#include "machine/machine.h"

#endif

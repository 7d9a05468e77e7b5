/* What code needs of a CPU and this one lacks. */
#ifndef TFM_RUNTIME_FEATURES_H
#define TFM_RUNTIME_FEATURES_H

#include "tfm/abi/cpu.h"

/* The name of the first of these features of this family, in the order of their bits, that `features` lacks; NULL:
 * none. */
const char *cpu_missing(uint32_t needed, uint32_t features);

#endif

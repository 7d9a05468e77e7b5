/* Weights of attention in whole numbers, by the scales of their values. In: vectors. Out: code. Refuses nothing. */
#ifndef TFM_KERNELS_WEIGH_ROWS_H
#define TFM_KERNELS_WEIGH_ROWS_H

#include "codegen/emitter.h"

/* x times the scale of its value, 0 times anything being 0. Vectors of any length. */
LLVMValueRef emit_weighed(Emitter *e, LLVMValueRef x, LLVMValueRef scale);

#endif

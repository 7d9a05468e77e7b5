/* Code: the kernels of all programs, for each instruction set, with what can be read off their assembly.
 *
 * In: the plans of the first target, and plans of the others for the same graphs. Out: the list `kernels`; blocks of
 * compressed text. Private to explore/. NULL after an error. */
#ifndef TFM_EXPLORE_CODE_DATA_H
#define TFM_EXPLORE_CODE_DATA_H

#include "explore/explorer.h"

json_t *explorer_kernels(Explorer *x, json_t *programs, json_t *blocks, json_t *notes);

#endif

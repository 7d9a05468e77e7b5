/* What is left of pointwise work, as POINTWISE nodes. */
#ifndef TFM_PASSES_POINTWISE_H
#define TFM_PASSES_POINTWISE_H

#include "passes/grow.h"

/* Every pointwise operation, gather and source that is computed in a run becomes a POINTWISE node; `fuse`: those that
 * only another one uses are taken into it. */
bool pointwise_replace_all(Pass *pass, bool fuse);

#endif

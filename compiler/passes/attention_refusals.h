/* What looks like attention and is none. Private to fuse_attention.c. */
#ifndef TFM_PASSES_ATTENTION_REFUSALS_H
#define TFM_PASSES_ATTENTION_REFUSALS_H

#include "passes/pass.h"

/* When all attentions are found: records for each product that is left and looks like one why it is none. */
void attention_explain(Pass *pass);

#endif

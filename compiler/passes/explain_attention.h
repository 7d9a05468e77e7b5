/* ExplainAttention: why something that looks like attention is none.
 *
 * In: the graph that fuse-attention leaves. Out: records of refusals, for those who wonder where their attention is.
 * Nothing is rewritten. */
#ifndef TFM_PASSES_EXPLAIN_ATTENTION_H
#define TFM_PASSES_EXPLAIN_ATTENTION_H

#include "passes/pass.h"

void explain_attention(Pass *pass);

#endif

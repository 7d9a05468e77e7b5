/* Views between the parts of an attention: axes before the last two that are regrouped, [b, h, t, s] as [b*h, t, s]. */
#ifndef TFM_PASSES_ATTENTION_VIEWS_H
#define TFM_PASSES_ATTENTION_VIEWS_H

#include "passes/match.h"

/* reshape(matmul(q, k)) becomes matmul(reshape(q), reshape(k)), which is returned; else the node itself. */
Node *attention_sink_reshape(Pass *pass, Node *reshape);
/* matmul(reshape(softmax), v) becomes reshape(matmul(softmax, reshape(v))); returned is the matmul to look at. */
Node *attention_lift_reshape(Pass *pass, Node *matmul);

#endif

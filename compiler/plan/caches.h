/* Caches: which values of a step of decoding lie in the runtime's pages, not in tensors. Private to plan/.
 *
 * In: a step graph (incremental/incremental.h). A value is cached in pages if all that is made of it are the keys or
 * values of attentions that can read them there. Out: the caches of the program, the inputs and outputs that remain,
 * views that count columns of a page, steps that append. Any other graph has none. */
#ifndef TFM_PLAN_CACHES_H
#define TFM_PLAN_CACHES_H

#include "plan/planner.h"

/* After liveness is known. Sets p->inputs and p->outputs to those that are no pages. */
void caches_find(Planner *p);
/* Whether the node's value is one that lies in pages. */
bool caches_has(const Planner *p, const Node *node);
/* Whether keys and values of this attention lie in pages. */
bool caches_serve(const Planner *p, const Node *attention);

typedef struct CacheView {
  uint32_t cache;  /* of the program */
  int64_t columns; /* of the cache: floats between its rows of values */
  View view;       /* strides in columns; along rows of the step and along positions they are only marks */
} CacheView;

/* Keys (input 1) or values (input 2) of an attention that caches_serve. */
CacheView caches_view(Planner *p, const Node *attention, uint32_t input);
/* Adds the steps that append the new positions, which lie in `fresh`, for a CONCAT that caches_has: one for the keys and
 * one for the values, as far as some attention reads the value as such. */
void caches_append(Planner *p, const Node *concat, const View *fresh);

#endif

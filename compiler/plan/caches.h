/* Caches: which values of a step program lie in the runtime's pages instead of in tensors. Private to plan/.
 *
 * In: a step graph (incremental/incremental.h). A value lies in pages if everything that is computed from it is the
 * keys or values of attentions that can read pages. Out: the caches of the program; the inputs and outputs that remain
 * tensors; views that count columns of a page; steps that append. A graph without caches has none of these, and the
 * other functions then answer no. Refuses nothing: a value that does not fit into pages stays a tensor. Everything is
 * allocated in the planner's arena. */
#ifndef TFM_PLAN_CACHES_H
#define TFM_PLAN_CACHES_H

#include "plan/planner.h"

/* Must be called once liveness is known. Sets p->inputs and p->outputs to those that remain tensors. */
void caches_find(Planner *p);
/* Whether the node's value is one that lies in pages. */
bool caches_has(const Planner *p, const Node *node);
/* Whether this attention reads its keys and values from pages: always both or neither. */
bool caches_serve(const Planner *p, const Node *attention);

typedef struct CacheView {
  uint32_t cache;     /* of the program */
  int64_t row_floats; /* between the rows of values that tiles read */
  View view; /* strides count columns, or heads of a cache whose form has scales; along rows and along positions they
                are marks without meaning (caches.c) */
} CacheView;

/* Views the keys (input 1) or the values (input 2) of an attention for which caches_serve is true. */
CacheView caches_view(Planner *p, const Node *attention, uint32_t input);
/* Adds the steps that append the new positions, which lie in `fresh`, for a CONCAT that caches_has: one for the
 * keys and one for the values, as far as some attention reads the value as such. */
void caches_append(Planner *p, const Node *concat, const View *fresh);

#endif

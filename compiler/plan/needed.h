/* Needed: steps that compute only the rows of their result at which somebody looks. Private to plan/.
 *
 * In: nodes with a mask of rows (attr.rows_mask, passes/needed_rows.c). Out: the part of a step that says so. */
#ifndef TFM_PLAN_NEEDED_H
#define TFM_PLAN_NEEDED_H

#include "plan/planner.h"

/* The number in p->needed, from 1 on, for the step that is about to be added, which walks all rows of the node in order; 0
 * if there is no mask, or none whose bytes lie side by side. */
uint32_t needed_rows(Planner *p, const Node *node);
/* The mask over [..., t, 1], for an attention that skips queries: false if it computes all. */
bool needed_queries(Planner *p, const Node *attention, View *mask);
/* The same for a step whose mask is this operand, with its strides. */
uint32_t needed_by_operand(Planner *p, const Node *node, const tfm_operand *mask);

#endif

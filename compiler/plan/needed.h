/* Needed: steps that compute only the rows of their result at which somebody looks. Private to plan/.
 *
 * In: nodes with a mask of rows (attr.rows_mask, passes/needed_rows.c). Out: the part of a step that says so. */
#ifndef TFM_PLAN_NEEDED_H
#define TFM_PLAN_NEEDED_H

#include "plan/planner.h"

/* For the step that is about to be added, which walks all rows of the node in order; nothing is given if there is no
 * mask, or none whose bytes lie side by side. */
tfm_needed_rows needed_rows(Planner *p, const Node *node);
/* The mask over [..., t, 1], for an attention that skips queries: false if it computes all. */
bool needed_queries(Planner *p, const Node *attention, View *mask);
/* The same for a step whose mask is this operand, with its strides. */
tfm_needed_rows needed_by_operand(Planner *p, const Node *node, const tfm_operand *mask);

#endif

/* Live rows: steps that compute only the rows of their result that something reads (attr.rows_mask, set by a pass;
 * docs/decisions/0011-live-rows.md).
 *
 * In: a node with a mask of its rows. Out: an entry of p->live, which the runtime turns into a list of rows at each
 * run. An entry also says whether rows that are left out must be filled with 0, because some other step reads them all
 * the same. Refuses nothing: where the mask has no form that the runtime can walk, every row is computed, which is
 * slower but gives the same values. Private to plan/. */
#ifndef TFM_PLAN_PLAN_LIVE_H
#define TFM_PLAN_PLAN_LIVE_H

#include "plan/planner.h"

/* For the step that is about to be added, which must walk all rows of the node in order. Returns a number in p->live,
 * counted from 1, or 0 if there is no mask or its bytes do not lie side by side. */
uint32_t live_rows(Planner *p, const Node *node);
/* Sets `mask` to the mask over [..., t, 1] of an attention that skips queries; false if all of them are computed. */
bool live_queries(Planner *p, const Node *attention, View *mask);
/* As live_rows, for a step that reads its mask through this operand, with these strides. */
uint32_t live_by_operand(Planner *p, const Node *node, const tfm_operand *mask);
/* Whether some steps of k of the product count, of each item others. Its items must stay apart from its rows. */
bool live_has_steps_of_items(const Node *node);
/* For a product of which only some steps of k count; never 0. Sets how the mask lies, a tfm_live_steps. */
uint32_t live_steps(Planner *p, const Node *node, uint8_t *how);
/* After all steps are there: products whose rows nothing but attention reads, as queries, keys and values of items that
 * have the same padding, need not clear what lies behind the last live row of an item. */
void live_settle(Planner *p);
/* Whether two such numbers stand for the same rows, whatever becomes of the others. */
bool live_are_same(const Planner *p, uint32_t a, uint32_t b);

#endif

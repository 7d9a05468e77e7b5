/* Chains of rows: steps through which a thread may take some rows without waiting for the others (tfm_row_chain).
 * Private to plan/. */
#ifndef TFM_PLAN_ROW_CHAINS_H
#define TFM_PLAN_ROW_CHAINS_H

#include "plan/planner.h"

/* After all steps are there: fills p->row_chains. */
void find_row_chains(Planner *p);

#endif

/* Memory: packed weights that several plans share. What the workspace of a run takes is known to the runtime alone
 * (runtime/context/workspace.c): it depends on the threads and on the caches of the machine too.
 *
 * In: plans of one model, whose recipes may be equal (the same static subgraph in the same layout). Out: one offset for
 * equal recipes, in one block: first the weights of the first plan in its order of execution, then what each other plan
 * needs besides; weights_bytes of every plan is the size of the block. Refuses nothing. */
#ifndef TFM_PLAN_MEMORY_H
#define TFM_PLAN_MEMORY_H

#include "plan/plan.h"

/* Changes the recipes and the weight tables of the plans; the new tables live in the arena. The runtime reads
 * weights in
 * the order of the block, so the first plan should be the one that is bound by reading them. */
void share_weights(Arena *arena, Plan *const *plans, uint32_t n);

/* Prints in one line what a recipe computes and how it lies in memory: equal exactly for recipes that pack the same
 * bytes from the same weights. `sizes` are those of the recipe's plan. */
void recipe_print(StrBuf *out, const SizeTable *sizes, const WeightRecipe *recipe);

#endif

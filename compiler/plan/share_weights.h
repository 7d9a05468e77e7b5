/* Sharing: several plans of one model have their packed weights in one block.
 *
 * In: plans whose recipes may be equal: the same static subgraph in the same layout. Out: the plans changed so that equal
 * recipes have one place. The first plan's weights come first, in its order of execution, then what each other one
 * needs besides. weights_bytes of every plan is the size of the whole. */
#ifndef TFM_PLAN_SHARE_WEIGHTS_H
#define TFM_PLAN_SHARE_WEIGHTS_H

#include "plan/plan.h"

void share_weights(Arena *arena, Plan *const *plans, uint32_t n);

/* What a recipe computes and how it lies in memory, in one line: equal exactly for recipes that pack the same bytes from
 * the same weights. Sizes are those of the plan that the recipe is of. */
void recipe_print(StrBuf *out, const SizeTable *sizes, const WeightRecipe *recipe);

#endif

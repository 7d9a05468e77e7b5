#include "aot/library_plans.h"

#include <string.h>

#include "plan/share_weights.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

PlanList library_plan_list(const LibraryPlans *plans) {
  PlanList list = {0};
  if (plans->decoding) list.plans[list.n++] = plans->decoding->step;
  if (plans->decoding && plans->decoding->source) list.plans[list.n++] = plans->decoding->source;
  list.plans[list.n++] = plans->forward;
  return list;
}

Plan library_kernels(Arena *arena, const LibraryPlans *plans) {
  const PlanList list = library_plan_list(plans);
  Plan all = {.arena = arena, .graph = plans->forward->graph, .target = plans->forward->target};
  for (uint32_t i = 0; i < list.n; i++)
    for (size_t k = 0; k < list.plans[i]->kernels.n; k++) vec_push(arena, &all.kernels, list.plans[i]->kernels.items[k]);
  return all;
}

static void print_layout(StrBuf *text, const Plan *plan) {
  for (size_t i = 0; i < plan->recipes.n; i++) {
    const WeightRecipe *recipe = &plan->recipes.items[i];
    if (recipe->is_shared) continue;
    strbuf_printf(text, "%llu %llu ", (unsigned long long)recipe->offset, (unsigned long long)recipe->bytes);
    recipe_print(text, plan->graph->sizes, recipe);
    strbuf_add_char(text, '\n');
  }
}

void library_layout(Arena *arena, const LibraryPlans *plans, uint8_t layout[16]) {
  const PlanList list = library_plan_list(plans);
  StrBuf text = strbuf_new(arena);
  for (uint32_t i = 0; i < list.n; i++) print_layout(&text, list.plans[i]);
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(text.text, text.length));
  memcpy(layout, canonical.digest, 16);
}

/* In: plans that share weights. Out: one block with an offset for each recipe. See plan_memory.h. */
#include "plan/plan_memory.h"

#include "base/map.h"
#include "plan/plan.h"

// ---- a recipe as text ----

typedef struct RecipePrinter {
  StrBuf *out;
  const SizeTable *sizes;
  Map seen; /* nodes, in the order in which they were met */
} RecipePrinter;

/* Prints a node that was met before as its number: a subgraph may use a value many times, and a tree of it could be
 * exponentially long. */
static void print_node(RecipePrinter *printer, const Node *node) {
  MapEntry *known = map_find(&printer->seen, &node, sizeof node);
  if (known) {
    strbuf_printf(printer->out, "#%u", (unsigned)(uintptr_t)known->value);
    return;
  }
  strbuf_printf(printer->out, "%s(", op_table[node->op].name);
  for (size_t i = 0; i < node->inputs.n; i++) {
    if (i) strbuf_add(printer->out, ", ");
    print_node(printer, node->inputs.items[i]);
  }
  strbuf_add_char(printer->out, ')');
  node_print_attributes(printer->out, printer->sizes, node, " ");
  map_put_n(&printer->seen, &node, sizeof node, (void *)(uintptr_t)printer->seen.n);
}

void recipe_print(StrBuf *out, const SizeTable *sizes, const WeightRecipe *recipe) {
  RecipePrinter printer = {.out = out, .sizes = sizes, .seen = map_new(out->arena)};
  strbuf_printf(out, "layout %d width %u form %u ", recipe->layout, recipe->width, recipe->form);
  print_node(&printer, recipe->node);
}

// ---- packed weights in one block ----

/* An equal recipe of an earlier plan gives this one its offset; otherwise it goes to the end of the block. */
static void place_recipe(Map *known, Arena *arena, const SizeTable *sizes, WeightRecipe *recipe, uint64_t *end) {
  StrBuf text = strbuf_new(arena);
  recipe_print(&text, sizes, recipe);
  MapEntry *equal = map_find(known, text.text, text.length);
  if (equal) {
    recipe->offset = ((const WeightRecipe *)equal->value)->offset;
    recipe->is_shared = true;
    return;
  }
  recipe->offset = *end;
  *end = (*end + recipe->bytes + 63) / 64 * 64;
  map_put_n(known, text.text, text.length, recipe);
}

static void write_offsets(Arena *arena, Plan *plan, uint64_t bytes) {
  tfm_weight *weights = ARENA_ARRAY(arena, tfm_weight, plan->recipes.n);
  for (size_t i = 0; i < plan->recipes.n; i++)
    weights[i] = (tfm_weight){plan->recipes.items[i].offset, plan->recipes.items[i].bytes};
  plan->program.weights = weights;
  plan->program.weights_bytes = bytes;
}

void share_weights(Arena *arena, Plan *const *plans, uint32_t n) {
  Arena *scratch = arena_create();
  Map known = map_new(scratch);
  uint64_t end = 0;
  for (uint32_t i = 0; i < n; i++)
    for (size_t k = 0; k < plans[i]->recipes.n; k++)
      place_recipe(&known, scratch, plans[i]->graph->sizes, &plans[i]->recipes.items[k], &end);
  for (uint32_t i = 0; i < n; i++)
    write_offsets(arena, plans[i], end + 64); /* as in plan.c: room behind the last panel */
  arena_destroy(scratch);
}

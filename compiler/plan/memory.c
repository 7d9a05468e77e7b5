/* In: plans and run-time sizes. Out: offsets of buffers and of packed weights. See memory.h and plan.h. */
#include "plan/memory.h"

#include "base/checked_size.h"
#include "base/map.h"
#include "plan/plan.h"

// ---- workspace ----

/* Greedy by size, exactly as the runtime does it when sizes are bound (docs/decisions/0005-memory-at-bind.md), so that
 * what is reported here is what a run takes: the largest buffer first, each into the lowest gap between the
 * buffers that
 * live at the same time and have an offset already, or behind them. Persistent buffers share memory with none. */

static int64_t symbol_value(const Plan *plan, uint8_t symbol, const int64_t *symbols) {
  if (symbol < TFM_FIRST_FLOOR) return symbols[symbol];
  const tfm_floor *floor = &plan->program.floors[symbol - TFM_FIRST_FLOOR];
  return plan_evaluate(plan, floor->numerator, symbols) / floor->divisor;
}

int64_t plan_evaluate(const Plan *plan, tfm_size size, const int64_t *symbols) {
  const tfm_polynomial *polynomial = &plan->program.polynomials[size];
  int64_t sum = 0;
  for (uint32_t i = 0; i < polynomial->n_terms; i++) {
    const tfm_term *term = &plan->program.terms[polynomial->first_term + i];
    int64_t product = term->coefficient;
    for (uint32_t j = 0; j < term->degree; j++)
      if (!checked_mul(product, symbol_value(plan, term->symbols[j], symbols), &product)) return INT64_MAX;
    if (!checked_add(sum, product, &sum)) return INT64_MAX;
  }
  return sum;
}

typedef struct Block {
  uint32_t buffer, first_step, last_step;
  bool persistent;
  uint64_t bytes, offset;
} Block;

/* A size that overflowed becomes UINT64_MAX / 1024: more than any machine has, and sums of it do not wrap soon. */
static uint64_t buffer_bytes(const Plan *plan, const tfm_buffer *buffer, const int64_t *symbols) {
  int64_t elements = plan_evaluate(plan, buffer->elements, symbols);
  uint64_t bytes = elements < 0 ? 0 : (uint64_t)elements;
  if (bytes > UINT64_MAX / 1024) return UINT64_MAX / 1024;
  return (bytes * dtype_bytes[buffer->dtype] + 63) / 64 * 64;
}

/* Sorted insertion: larger blocks first, equal ones in the order of the program, so that the result is always the
 * same. */
static void insert(Block *blocks, uint32_t n, Block block) {
  uint32_t i = n;
  for (; i > 0; i--) {
    const Block *before = &blocks[i - 1];
    if (before->bytes >= block.bytes) break;
    blocks[i] = *before;
  }
  blocks[i] = block;
}

/* Lifetimes are whole steps and include both ends: a step may read one buffer while it writes the other. */
static bool live_together(const Block *a, const Block *b) {
  if (a->persistent || b->persistent) return true;
  return a->first_step <= b->last_step && b->first_step <= a->last_step;
}

/* Returns the lowest offset at which `block` fits between the placed blocks that live at the same time. `placed` is
 * ordered by offset. */
static uint64_t lowest_gap(Block *const *placed, uint32_t n, const Block *block) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < n; i++) {
    const Block *other = placed[i];
    if (!live_together(other, block)) continue;
    if (other->offset >= end + block->bytes) break;
    if (other->offset + other->bytes > end) end = other->offset + other->bytes;
  }
  return end;
}

static void place(Block **placed, uint32_t n, Block *block) {
  block->offset = lowest_gap(placed, n, block);
  uint32_t i = n;
  for (; i > 0 && placed[i - 1]->offset > block->offset; i--) placed[i] = placed[i - 1];
  placed[i] = block;
}

uint64_t plan_workspace_bytes(const Plan *plan, const int64_t *symbols, uint64_t *offsets) {
  uint32_t n = plan->program.n_buffers;
  Arena *scratch = arena_create();
  Block *blocks = ARENA_ARRAY(scratch, Block, n + 1);
  Block **placed = ARENA_ARRAY(scratch, Block *, n + 1);
  uint64_t all = 0;
  for (uint32_t i = 0; i < n; i++) {
    const tfm_buffer *buffer = &plan->program.buffers[i];
    insert(blocks, i, (Block){.buffer = i, .first_step = buffer->first_step, .last_step = buffer->last_step,
                              .persistent = buffer->persistent, .bytes = buffer_bytes(plan, buffer, symbols)});
  }
  for (uint32_t i = 0; i < n; i++) {
    place(placed, i, &blocks[i]);
    if (blocks[i].offset + blocks[i].bytes > all) all = blocks[i].offset + blocks[i].bytes;
    if (offsets) offsets[blocks[i].buffer] = blocks[i].offset;
  }
  arena_destroy(scratch);
  return all;
}

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

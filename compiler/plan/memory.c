/* In: buffers with lifetimes, values of the run-time sizes. Out: an offset per buffer and the bytes of all.
 *
 * Greedy by size: the largest buffer first; each goes into the lowest gap between those that live at the same time and
 * were placed before, or after them. Persistent buffers share with nobody. */
#include "base/checked_size.h"
#include "plan/plan.h"

int64_t plan_evaluate(const Plan *plan, tfm_size size, const int64_t *symbols) {
  const tfm_polynomial *polynomial = &plan->program.polynomials[size];
  int64_t sum = 0;
  for (uint32_t i = 0; i < polynomial->n_terms; i++) {
    const tfm_term *term = &plan->program.terms[polynomial->first_term + i];
    int64_t product = term->coefficient;
    for (uint32_t j = 0; j < term->degree; j++)
      if (!checked_mul(product, symbols[term->symbols[j]], &product)) return INT64_MAX;
    if (!checked_add(sum, product, &sum)) return INT64_MAX;
  }
  return sum;
}

typedef struct Block {
  uint32_t buffer, first_step, last_step;
  bool persistent;
  uint64_t bytes, offset;
} Block;

static uint64_t buffer_bytes(const Plan *plan, const tfm_buffer *buffer, const int64_t *symbols) {
  int64_t elements = plan_evaluate(plan, buffer->elements, symbols);
  uint64_t bytes = elements < 0 ? 0 : (uint64_t)elements;
  if (bytes > UINT64_MAX / 1024) return UINT64_MAX / 1024;
  return (bytes * dtype_bytes[buffer->dtype] + 63) / 64 * 64;
}

/* Sorted insertion: larger first, equal ones in their order. */
static void insert(Block *blocks, uint32_t n, Block block) {
  uint32_t i = n;
  for (; i > 0; i--) {
    const Block *before = &blocks[i - 1];
    if (before->bytes >= block.bytes) break;
    blocks[i] = *before;
  }
  blocks[i] = block;
}

static bool live_together(const Block *a, const Block *b) {
  if (a->persistent || b->persistent) return true;
  return a->first_step <= b->last_step && b->first_step <= a->last_step;
}

/* The lowest gap between the placed blocks (ordered by offset) that live together with `block`. */
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

/* The workspace of a context: the buffers of a program, then the scratch of each thread, then what stands for inputs
 * that are left out. In: sizes of all buffers and of scratch. Out: memory, and the place of each.
 *
 * Buffers that are never live at the same time share memory: each buffer is placed at the lowest offset at which it
 * overlaps none that is live with it, larger buffers first (the greedy order of size, which is within a few percent of
 * the best in practice). Small ones share it with their like only: threads cut steps of a kind alike, so each finds
 * the lines that it writes where it left them, and not in another core's cache. The plan is kept as long as every
 * buffer still fits into its place, so that small changes of a size cost nothing. Refused: sizes whose bytes overflow,
 * and sizes for which there is no memory; after either the plan is forgotten and the context must be bound anew. */
#include <string.h>

#include "base/allocate.h"
#include "context/binding.h"
#include "context/step_operands.h"
#include "machine/processors.h"

/* A persistent buffer is live in every run, so it shares memory with none. */
static bool live_together(const tfm_context *context, uint32_t a, uint32_t b) {
  const tfm_buffer *buffers = context->program->buffers;
  if (buffers[a].persistent || buffers[b].persistent) return true;
  const BufferLife *one = &context->memory.lives[a], *other = &context->memory.lives[b];
  return one->first_step <= other->last_step && other->first_step <= one->last_step;
}

int64_t memory_buffer_bytes(const tfm_context *context, uint32_t buffer) {
  const tfm_buffer *info = &context->program->buffers[buffer];
  int64_t elements = value_of(context, info->elements);
  if (elements < 0 || elements > INT64_MAX / 8) return -1;
  return round_up(elements * dtype_size(info->dtype), ALIGNMENT);
}

static void sort_by_size(tfm_context *context) {
  uint32_t n = context->program->n_buffers, *order = context->memory.buffer_order;
  const int64_t *bytes = context->memory.buffer_bytes;
  for (uint32_t gap = n / 2; gap > 0; gap /= 2) { /* Shell's sort: no recursion, no memory; ties by number */
    for (uint32_t i = gap; i < n; i++) {
      uint32_t item = order[i], j = i;
      for (; j >= gap; j -= gap) {
        uint32_t other = order[j - gap];
        if (bytes[other] > bytes[item] || (bytes[other] == bytes[item] && other < item)) break;
        order[j] = other;
      }
      order[j] = item;
    }
  }
}

/* As large, and written by a step of the same kind: those of other layers. */
static bool are_alike(const tfm_context *context, uint32_t a, uint32_t b) {
  const tfm_program *program = context->program;
  const uint32_t first = program->buffers[a].first_step, other = program->buffers[b].first_step;
  return context->memory.buffer_bytes[a] == context->memory.buffer_bytes[b] && first < program->n_steps &&
         other < program->n_steps && program->steps[first].kind == program->steps[other].kind;
}

/* The lowest offset at which `buffer` overlaps none of the first `placed` buffers that live at the same time or, if
 * only like ones may share, are others. */
static int64_t lowest_gap(const tfm_context *context, uint32_t buffer, uint32_t placed, bool only_alike) {
  int64_t offset = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t i = 0; i < placed; i++) {
      uint32_t other = context->memory.buffer_order[i];
      bool may_share = !live_together(context, buffer, other);
      if (may_share && (!only_alike || are_alike(context, buffer, other))) continue;
      int64_t begin = context->memory.buffer_offsets[other], end = begin + context->memory.buffer_bytes[other];
      if (offset >= end || offset + context->memory.buffer_bytes[buffer] <= begin) continue;
      offset = end;
      moved = true;
    }
  }
  return offset;
}

/* Offsets of all buffers, in the order of size. False: the workspace would be too large to address. The cost is
 * quadratic in the number of buffers; programs have some dozens. */
static bool place_all(tfm_context *context, bool only_alike) {
  Memory *memory = &context->memory;
  memory->buffers_bytes = 0;
  for (uint32_t i = 0; i < context->program->n_buffers; i++) {
    uint32_t buffer = memory->buffer_order[i];
    memory->buffer_offsets[buffer] = lowest_gap(context, buffer, i, only_alike);
    int64_t end;
    if (__builtin_add_overflow(memory->buffer_offsets[buffer], memory->buffer_bytes[buffer], &end)) return false;
    memory->buffers_bytes = greatest_of(memory->buffers_bytes, end);
  }
  return true;
}

/* Measured: lines that other steps wrote in between cost up to 3 % of a run, but buffers that no longer stay in the
 * caches cost more than that. With one thread no line is elsewhere. */
static int64_t most_bytes_apart(const tfm_context *context) {
  return context->threads > 1 ? 2 * cpu_cache_bytes(2) * context->threads : 0;
}

static bool place_buffers(tfm_context *context) {
  uint32_t *order = context->memory.buffer_order;
  context->run.operands_stale = ALL_SYMBOLS;
  for (uint32_t i = 0; i < context->program->n_buffers; i++) order[i] = i;
  sort_by_size(context);
  const int64_t most = most_bytes_apart(context);
  return (most && place_all(context, true) && context->memory.buffers_bytes <= most) || place_all(context, false);
}

/* Lockstep runs go on step by step, so their buffers live no longer than the program says. Where chains of rows are too
 * short when memory is planned, more rows make a new plan. */
static void find_lives(tfm_context *context, int64_t runs) {
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_buffers; i++)
    context->memory.lives[i] = (BufferLife){program->buffers[i].first_step, program->buffers[i].last_step};
  context->memory.chained =
      program->n_row_chains && runs == 1 && !context->memory.keeps_room && program->drivers->plan_chains(context);
}

/* Bytes of a buffer in so many lockstep runs, whose parts each begin at a multiple of ALIGNMENT (spare_bytes). */
static int64_t bytes_for(const tfm_context *context, uint32_t buffer, int64_t runs) {
  int64_t bytes = memory_buffer_bytes(context, buffer);
  if (bytes < 0 || __builtin_mul_overflow(bytes, runs, &bytes) ||
      __builtin_add_overflow(bytes, context->memory.spare_bytes, &bytes))
    return -1;
  return bytes;
}

/* Plans anew only if a buffer outgrew its place. With keeps_room, places never shrink: decoders bind the largest runs
 * first and must find room for all others later. */
static bool plan_buffers(tfm_context *context, int64_t runs) {
  Memory *memory = &context->memory;
  bool fits = true;
  for (uint32_t i = 0; i < context->program->n_buffers; i++) {
    int64_t bytes = bytes_for(context, i, runs);
    if (bytes < 0) return false;
    fits = fits && bytes <= memory->buffer_bytes[i];
  }
  if (fits) return true;
  for (uint32_t i = 0; i < context->program->n_buffers; i++) {
    int64_t before = memory->buffer_bytes[i];
    memory->buffer_bytes[i] = bytes_for(context, i, runs);
    if (memory->keeps_room) memory->buffer_bytes[i] = greatest_of(before, memory->buffer_bytes[i]);
  }
  find_lives(context, runs);
  return place_buffers(context);
}

/* The old workspace is released only after the new one is there: a failure leaves the context as it was. Contents are
 * not copied, since a bind starts from nothing. */
static bool reserve(tfm_context *context, int64_t bytes) {
  if (context->memory.workspace && bytes <= context->memory.workspace_bytes) return true;
  char *memory = allocate_large(&context->allocator, &bytes);
  if (!memory) return false;
  memory_release(context);
  context->memory.workspace = memory;
  context->run.operands_stale = ALL_SYMBOLS;
  context->memory.workspace_bytes = bytes;
  return true;
}

/* Without buffer sizes the next plan places every buffer anew. bytes < 0: the sizes overflowed; else there was no
 * memory. */
static tfm_status forget_plan(tfm_context *context, tfm_error *error, int64_t bytes) {
  memset(context->memory.buffer_bytes, 0, sizeof(int64_t) * context->program->n_buffers);
  context->memory.buffers_bytes = 0; /* buffers without elements fit in this plan and do not make a new one */
  if (bytes < 0) return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL, "the sizes of this run are too large");
  return tfm_fail(error, TFM_E_NOMEM, TFM_REASON_OTHER, NULL, "no memory for a workspace of %lld bytes",
                  (long long)bytes);
}

int64_t memory_measure(tfm_context *context, int64_t scratch_bytes, int64_t runs) {
  int64_t bytes;
  const int64_t defaults = inputs_default_bytes(context);
  if (scratch_bytes < 0 || defaults < 0 || !plan_buffers(context, runs) ||
      __builtin_mul_overflow(round_up(scratch_bytes, ALIGNMENT), (int64_t)context->threads, &bytes) ||
      __builtin_add_overflow(bytes, context->memory.buffers_bytes, &bytes) ||
      __builtin_add_overflow(bytes, defaults, &bytes))
    return -1;
  return bytes;
}

tfm_status memory_plan(tfm_context *context, int64_t scratch_bytes, int64_t runs, tfm_error *error) {
  Memory *memory = &context->memory;
  if (memory->keeps_room && scratch_bytes >= 0) scratch_bytes = greatest_of(scratch_bytes, memory->scratch_bytes);
  int64_t bytes = memory_measure(context, scratch_bytes, runs);
  if (bytes < 0) return forget_plan(context, error, -1);
  if (!reserve(context, bytes)) return forget_plan(context, error, bytes);
  memory->scratch_bytes = round_up(scratch_bytes, ALIGNMENT);
  memory->used_bytes = bytes;
  return TFM_OK;
}

void memory_release(tfm_context *context) {
  release(&context->allocator, context->memory.workspace, (size_t)context->memory.workspace_bytes);
}

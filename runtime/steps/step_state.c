/* Linear attention: states that go from step to step, in blocks of columns.
 *
 * In: operands resolved to bytes. Out: what each step reads of the state, and the state behind the last one. Threads
 * share items and blocks of columns, and a block is walked from its first step to its last by one of them, so no number
 * depends on how many there are. Nothing is refused. */
#include <string.h>

#include "steps/items.h"
#include "steps/walker.h"

static int64_t state_bytes(const tfm_state_step *state) {
  return state->n * TFM_STATE_COLUMNS * (int64_t)sizeof(float);
}

int64_t state_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  return state_bytes(&context->program->states[step->index]);
}

/* Distances, which all items have in common. */
static tfm_state_args distances_of(const tfm_state_step *state, const struct state_operands *operands) {
  const int t = state->rank - 2, last = state->rank - 1;
  return (tfm_state_args){.n = state->n,
                          .q_step = operands->q.strides[t], .k_step = operands->k.strides[t],
                          .v_step = operands->v.strides[t], .decay_step = operands->decay.strides[t],
                          .beta_step = operands->beta_values.strides[t], .y_step = operands->c.strides[t],
                          .q_row = operands->q.strides[last], .k_row = operands->k.strides[last],
                          .decay_row = operands->decay.strides[last]};
}

/* Puts the operands where item `number` begins, and columns from `column` on. */
static void place_block(const tfm_context *context, const Items *items, const struct state_operands *operands,
                        int64_t number, int64_t column, tfm_state_args *args) {
  const int64_t along = column * (int64_t)sizeof(float);
  const int64_t beta_along = column * operands->beta_values.strides[items->axes + 1];
  args->q = items_address(context, items, &operands->q, number);
  args->k = items_address(context, items, &operands->k, number);
  args->v = items_address(context, items, &operands->v, number) + along;
  args->decay = items_address(context, items, &operands->decay, number);
  args->beta = items_address(context, items, &operands->beta_values, number) + beta_along;
  args->y = items_address(context, items, &operands->c, number) + along;
}

typedef struct StateBlock { /* of one item, columns of its states; NULL: it begins with 0, nobody reads the last one */
  const char *initial;
  char *last;
  int64_t initial_row, last_row; /* bytes from row to row of the state */
} StateBlock;

static StateBlock block_of(const tfm_context *context, const tfm_step *step, const Items *items, int64_t number,
                           int64_t column) {
  const tfm_state_step *state = &context->program->states[step->index];
  const struct state_operands *operands = &operands_of(context, step)->state;
  const int64_t along = column * (int64_t)sizeof(float), axis = state->rank - 2;
  StateBlock block = {.initial_row = operands->initial.strides[axis]};
  if (state->has_initial) block.initial = items_address(context, items, &operands->initial, number) + along;
  if (state->has_last) block.last = items_address(context, items, &operands->last, number) + along;
  if (state->has_last) block.last_row = operands->last.strides[axis];
  return block;
}

static void copy_rows(char *to, int64_t to_row, const char *from, int64_t from_row, const tfm_state_args *args) {
  for (int64_t i = 0; i < args->n; i++)
    memcpy(to + i * to_row, from + i * from_row, (size_t)args->columns * sizeof(float));
}

/* The kernel reads and writes whole blocks of columns, so fewer go through scratch. */
static void walk_block(tfm_state_kernel kernel, const StateBlock *block, tfm_state_args *args) {
  static const float zeros[TFM_STATE_COLUMNS];
  const bool is_whole = args->columns == TFM_STATE_COLUMNS;
  const int64_t row = TFM_STATE_COLUMNS * (int64_t)sizeof(float);
  args->in = (const char *)zeros, args->in_row = 0;
  args->out = (char *)args->state, args->out_row = row;
  if (block->initial && is_whole) args->in = block->initial, args->in_row = block->initial_row;
  if (block->last && is_whole) args->out = block->last, args->out_row = block->last_row;
  if (block->initial && !is_whole) {
    memset(args->state, 0, (size_t)(args->n * row));
    copy_rows((char *)args->state, row, block->initial, block->initial_row, args);
    args->in = (const char *)args->state, args->in_row = row;
  }
  if (args->steps) kernel(args);
  else if (block->last) copy_rows(block->last, block->last_row, args->in, args->in_row, args);
  if (args->steps && block->last && !is_whole) copy_rows(block->last, block->last_row, args->out, row, args);
}

void step_state(Walker *walker, const tfm_step *step) {
  const tfm_context *context = walker->context;
  const tfm_state_step *state = &context->program->states[step->index];
  const struct state_operands *operands = &operands_of(context, step)->state;
  const tfm_state_kernel kernel = KERNEL_OF(tfm_state_kernel, context, state->kernel);
  const Items items = items_of(context, state->dims, state->rank - 2);
  const int64_t columns = value_of(context, state->dims[state->rank - 1]);
  const int64_t blocks = (columns + TFM_STATE_COLUMNS - 1) / TFM_STATE_COLUMNS;
  tfm_state_args args = distances_of(state, operands);
  args.steps = value_of(context, state->dims[state->rank - 2]);
  args.state = (float *)(void *)walker->scratch;
  const int64_t units = items_count(&items) * blocks;
  const int64_t end = units * (walker->thread + 1) / walker->threads;
  for (int64_t unit = units * walker->thread / walker->threads; unit < end; unit++) {
    const int64_t column = unit % blocks * TFM_STATE_COLUMNS;
    place_block(context, &items, operands, unit / blocks, column, &args);
    args.columns = least_of(columns - column, TFM_STATE_COLUMNS);
    const StateBlock block = block_of(context, step, &items, unit / blocks, column);
    walk_block(kernel, &block, &args);
  }
}

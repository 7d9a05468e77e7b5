/* Linear attention: states that go from step to step, in blocks of columns.
 *
 * In: operands resolved to bytes. Out: what each step reads of the state. Threads share items and blocks of columns,
 * and a block is walked from its first step to its last by one of them, so no number depends on how many there are.
 * Nothing is refused. */
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
  const int64_t units = args.steps ? items_count(&items) * blocks : 0;
  const int64_t end = units * (walker->thread + 1) / walker->threads;
  for (int64_t unit = units * walker->thread / walker->threads; unit < end; unit++) {
    const int64_t column = unit % blocks * TFM_STATE_COLUMNS;
    place_block(context, &items, operands, unit / blocks, column, &args);
    args.columns = least_of(columns - column, TFM_STATE_COLUMNS);
    memset(args.state, 0, (size_t)state_bytes(state));
    kernel(&args);
  }
}

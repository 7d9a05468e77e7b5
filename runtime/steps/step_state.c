/* Linear attention: states that go from step to step, in blocks of columns; and what its operands get, from the last
 * step of an item to the first.
 *
 * In: operands resolved to bytes, what the result gets. Out: what each step reads of the state, and the state behind
 * the last one; what each operand gets. Threads share items and blocks of columns, and a block is walked from its first
 * step to its last by one of them, so no number depends on how many there are. Of the gradient a unit is an item with
 * all columns. Nothing is kept of the first half but operands: states are computed again, first what keys read, and the
 * states before every `apart`th step, then, for one such stretch after the other, those before each of its steps. So
 * how far apart they are changes no bit. Steps behind the last one that gets something are left out and give zeros,
 * whatever their operands hold. Nothing is refused.
 *
 * The loops, from outside to inside:
 *
 *   items             of all axes before the steps; S is [n, columns]       units with the next one
 *     blocks          state->block columns of S          scratch, or where the states lie; in decoding a row's block
 *       steps, rows   t ascending, then i of n           in the kernel (kernels/state.c)
 *
 *   items             of the gradient, with all columns                     units
 *     keep_states     S before every apart'th step, what keys read        kernel passes
 *     steps_back      `apart` steps, the last stretch first
 *                     S before every second of them, what q gets          kernel keeps
 *                     the last step first: what other operands get        kernel through */
#include <string.h>

#include "machine/tuning.h"
#include "steps/items.h"
#include "steps/walker.h"

int64_t state_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  const tfm_state_step *state = &context->program->states[step->index];
  return state->n * greatest_of(state->block, state->one_block) * (int64_t)sizeof(float);
}

/* Distances, which all items have in common. */
static tfm_state_args distances_of(const tfm_state_step *state, const struct state_operands *operands) {
  const int t = state->rank - 2;
  return (tfm_state_args){.n = state->n,
                          .q_step = operands->q.strides[t], .k_step = operands->k.strides[t],
                          .v_step = operands->v.strides[t], .decay_step = operands->decay.strides[t],
                          .beta_step = operands->beta_values.strides[t], .y_step = operands->c.strides[t]};
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
static void walk_block(tfm_state_kernel kernel, int64_t width, const StateBlock *block, tfm_state_args *args) {
  static const float zeros[TFM_STATE_COLUMNS];
  const bool is_whole = args->columns == width;
  const int64_t row = width * (int64_t)sizeof(float);
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
  const Items items = items_of(context, state->dims, state->rank - 2);
  const int64_t columns = value_of(context, state->dims[state->rank - 1]);
  tfm_state_args args = distances_of(state, operands);
  args.steps = value_of(context, state->dims[state->rank - 2]);
  const bool is_one = args.steps == 1 && state->has_initial;
  const tfm_state_kernel kernel = KERNEL_OF(tfm_state_kernel, context, is_one ? state->one : state->kernel);
  const int64_t width = is_one ? state->one_block : state->block, blocks = (columns + width - 1) / width;
  args.state = (float *)(void *)walker->scratch;
  const int64_t units = items_count(&items) * blocks;
  const int64_t end = units * (walker->thread + 1) / walker->threads;
  for (int64_t unit = units * walker->thread / walker->threads; unit < end; unit++) {
    const int64_t column = unit % blocks * width;
    place_block(context, &items, operands, unit / blocks, column, &args);
    args.columns = least_of(columns - column, width);
    const StateBlock block = block_of(context, step, &items, unit / blocks, column);
    walk_block(kernel, width, &block, &args);
  }
}

// ---- the gradient ----

typedef struct StateGrad {
  const tfm_context *context;
  const tfm_state_grad_step *step;
  const struct state_grad_operands *operands;
  Items items;
  int64_t steps, columns, row; /* of an item; bytes from row to row of a state */
  int64_t state_bytes, apart;
  char *kept, *stretch, *written, *given; /* states before every apart'th step; of a stretch: before each step, lines */
  float *gets, *sums, *lines, *block;     /* what a state gets; scratch of the kernels */
} StateGrad;

typedef struct ItemPlaces { /* where an item begins */
  const char *q, *k, *v, *decay, *beta, *g;
  char *c, *dk, *dv, *ddecay, *dbeta;
} ItemPlaces;

/* The least memory is taken where there are as many states of each kind. But the states of a stretch are written and
 * read again, so they shall stay in a cache; then there are more of the others, which are read once. */
static int64_t distance_between(int64_t steps, int64_t state_bytes) {
  int64_t apart = 1;
  while (apart * apart < steps) apart *= 2;
  while (apart > 1 && apart / TFM_STATE_APART * state_bytes > STATES_IN_CACHE && steps * 2 / apart <= STATES_KEPT)
    apart /= 2;
  return apart;
}

static StateGrad state_grad_of(const tfm_context *context, const tfm_step *step) {
  const tfm_state_grad_step *info = &context->program->state_grads[step->index];
  const int64_t wide = info->wide;
  StateGrad a = {.context = context, .step = info, .operands = &operands_of(context, step)->state_grad,
                 .items = items_of(context, info->dims, info->rank - 2),
                 .steps = value_of(context, info->dims[info->rank - 2]),
                 .columns = value_of(context, info->dims[info->rank - 1])};
  a.row = (a.columns + wide - 1) / wide * wide * (int64_t)sizeof(float);
  a.state_bytes = info->n * a.row;
  a.apart = distance_between(a.steps, a.state_bytes);
  return a;
}

/* The parts of a thread's scratch, one behind the other from `base`, in whole lines of a cache; returns their bytes. */
static int64_t lay_out_states(StateGrad *a, char *base) {
  const int64_t n_kept = (a->steps + a->apart - 1) / a->apart, of_block = a->step->n * a->step->block;
  const int64_t of_stretch = (a->apart + 1) / TFM_STATE_APART, stretch = n_kept * a->state_bytes;
  const int64_t written = stretch + of_stretch * a->state_bytes;
  const int64_t given = written + a->apart * a->row, gets = given + a->apart * a->row;
  const int64_t sums = gets + a->state_bytes, lines = sums + a->apart * TFM_STATE_SUMS * (int64_t)sizeof(float);
  const int64_t block = lines + TFM_STATE_LINES * a->row;
  if (!base) return block + of_block * (int64_t)sizeof(float);
  a->kept = base, a->stretch = base + stretch, a->written = base + written, a->given = base + given;
  a->gets = (float *)(void *)(base + gets), a->sums = (float *)(void *)(base + sums);
  a->lines = (float *)(void *)(base + lines), a->block = (float *)(void *)(base + block);
  return 0;
}

int64_t state_grad_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  StateGrad a = state_grad_of(context, step);
  return lay_out_states(&a, NULL);
}

static ItemPlaces places_of(const StateGrad *a, int64_t number) {
  const struct state_grad_operands *of = a->operands;
  ItemPlaces at = {.q = items_address(a->context, &a->items, &of->q, number),
                   .k = items_address(a->context, &a->items, &of->k, number),
                   .v = items_address(a->context, &a->items, &of->v, number),
                   .decay = items_address(a->context, &a->items, &of->decay, number),
                   .beta = items_address(a->context, &a->items, &of->beta_values, number),
                   .g = items_address(a->context, &a->items, &of->g, number),
                   .c = items_address(a->context, &a->items, &of->c, number),
                   .dk = items_address(a->context, &a->items, &of->dk, number),
                   .dv = items_address(a->context, &a->items, &of->dv, number)};
  if (a->step->has_decay) at.ddecay = items_address(a->context, &a->items, &of->ddecay, number);
  if (a->step->beta) at.dbeta = items_address(a->context, &a->items, &of->dbeta, number);
  return at;
}

/* Operands of steps from step t on, whose state before is `from`; NULL: it is 0. */
static tfm_state_args args_from(const StateGrad *a, const ItemPlaces *at, int64_t t, const char *from) {
  const struct state_grad_operands *of = a->operands;
  const int axis = a->step->rank - 2;
  return (tfm_state_args){.n = a->step->n, .state = a->block,
                          .k = at->k + t * of->k.strides[axis], .decay = at->decay + t * of->decay.strides[axis],
                          .k_step = of->k.strides[axis], .v_step = of->v.strides[axis],
                          .decay_step = of->decay.strides[axis], .beta_step = of->beta_values.strides[axis],
                          .in_row = from ? a->row : 0, .out_row = a->row, .kept_row = a->row,
                          .kept_step = a->state_bytes, .reads_step = of->dv.strides[axis]};
}

/* Walks steps from step t on, block by block of columns. `args->out` and `kept` are rows of whole blocks. */
static void walk_steps(const StateGrad *a, const ItemPlaces *at, int64_t t, const char *from, tfm_state_args *args) {
  static const float zeros[TFM_STATE_COLUMNS];
  const tfm_state_kernel kernel = KERNEL_OF(tfm_state_kernel, a->context, a->step->passes);
  const struct state_grad_operands *of = a->operands;
  const int axis = a->step->rank - 2, last = axis + 1;
  const int64_t width = a->step->block, along = width * (int64_t)sizeof(float);
  for (int64_t column = 0; column * (int64_t)sizeof(float) < a->row; column += width) {
    args->columns = least_of(a->columns - column, width);
    args->v = at->v + t * of->v.strides[axis] + column * (int64_t)sizeof(float);
    args->beta = at->beta + t * of->beta_values.strides[axis] + column * of->beta_values.strides[last];
    args->in = from ? from + column * (int64_t)sizeof(float) : (const char *)zeros;
    kernel(args);
    args->out += along, args->kept += along, args->reads += along;
  }
}

static char *kept_state(const StateGrad *a, int64_t number) { return a->kept + number * a->state_bytes; }

/* The states before every apart'th of the steps: without beta of a walk for each stretch. With beta one walk over all
 * steps leaves what keys read too, where v gets something later. */
static void keep_states(const StateGrad *a, const ItemPlaces *at, int64_t steps) {
  const int64_t stretches = steps ? (steps - 1) / a->apart : 0, calls = a->step->beta ? steps > 0 : stretches;
  memset(a->kept, 0, (size_t)a->state_bytes);
  for (int64_t i = 0; i < calls; i++) {
    const char *from = i ? kept_state(a, i) : NULL;
    tfm_state_args args = args_from(a, at, i * a->apart, from);
    args.steps = a->step->beta ? steps : a->apart, args.stretch = a->apart;
    args.out = args.kept = kept_state(a, i + 1), args.reads = at->dv;
    walk_steps(a, at, i * a->apart, from, &args);
  }
}

/* What the operands of `steps` steps from step t on get; `from`: the state before them. */
static void steps_back(const StateGrad *a, const ItemPlaces *at, int64_t t, int64_t steps, const char *from) {
  const struct state_grad_operands *of = a->operands;
  const int axis = a->step->rank - 2;
  tfm_state_grad_args args = {
      .n = a->step->n, .steps = steps, .columns = a->columns, .row = a->row,
      .first = from, .before = a->stretch, .before_step = a->state_bytes / TFM_STATE_APART,
      .written = a->written, .written_step = a->row, .given = a->given, .given_step = a->row,
      .state = a->gets, .sums = a->sums, .lines = a->lines,
      .q_step = of->q.strides[axis], .k_step = of->k.strides[axis], .v_step = of->v.strides[axis],
      .decay_step = of->decay.strides[axis], .beta_step = of->beta_values.strides[axis], .g_step = of->g.strides[axis],
      .dq_step = of->c.strides[axis], .dk_step = of->dk.strides[axis], .dv_step = of->dv.strides[axis],
      .ddecay_step = of->ddecay.strides[axis], .dbeta_step = of->dbeta.strides[axis]};
  args.q = at->q + t * args.q_step, args.k = at->k + t * args.k_step, args.v = at->v + t * args.v_step;
  args.decay = at->decay + t * args.decay_step, args.beta = at->beta + t * args.beta_step;
  args.g = at->g + t * args.g_step;
  args.dq = at->c + t * args.dq_step, args.dk = at->dk + t * args.dk_step, args.dv = at->dv + t * args.dv_step;
  if (a->step->has_decay) args.ddecay = at->ddecay + t * args.ddecay_step;
  if (a->step->beta) args.dbeta = at->dbeta + t * args.dbeta_step;
  KERNEL_OF(tfm_state_grad_kernel, a->context, a->step->keeps)(&args);
  KERNEL_OF(tfm_state_grad_kernel, a->context, a->step->through)(&args);
}

/* Steps up to the last one that gets something. */
static int64_t live_steps(const StateGrad *a, const char *g) {
  const int axis = a->step->rank - 2;
  for (int64_t t = a->steps; t > 0; t--) {
    const float *row = (const float *)(const void *)(g + (t - 1) * a->operands->g.strides[axis]);
    for (int64_t j = 0; j < a->columns; j++)
      if (row[j] != 0.0f) return t;
  }
  return 0;
}

/* Rows of steps from `first` on become 0. */
static void clear_behind(const StateGrad *a, char *c, const Operand *of, int64_t first, int64_t columns) {
  const int axis = a->step->rank - 2;
  for (int64_t t = first; c && t < a->steps; t++)
    memset(c + t * of->strides[axis], 0, (size_t)columns * sizeof(float));
}

static void do_item(const StateGrad *a, int64_t number) {
  const ItemPlaces at = places_of(a, number);
  const struct state_grad_operands *of = a->operands;
  const int64_t n = a->step->n, steps = live_steps(a, at.g);
  clear_behind(a, at.c, &of->c, steps, n);
  clear_behind(a, at.dk, &of->dk, steps, n);
  clear_behind(a, at.dv, &of->dv, steps, a->columns);
  clear_behind(a, at.ddecay, &of->ddecay, steps, a->step->decay_by_rows ? n : 1);
  clear_behind(a, at.dbeta, &of->dbeta, steps, a->step->beta == TFM_BETA_EACH ? a->columns : 1);
  keep_states(a, &at, steps);
  memset(a->gets, 0, (size_t)a->state_bytes);
  for (int64_t first = (steps - 1) / a->apart * a->apart; steps && first >= 0; first -= a->apart)
    steps_back(a, &at, first, least_of(a->apart, steps - first), kept_state(a, first / a->apart));
}

void step_state_grad(Walker *walker, const tfm_step *step) {
  StateGrad a = state_grad_of(walker->context, step);
  lay_out_states(&a, walker->scratch);
  const int64_t items = items_count(&a.items), end = items * (walker->thread + 1) / walker->threads;
  for (int64_t item = items * walker->thread / walker->threads; item < end; item++) do_item(&a, item);
}

/* A gradient of several rows, x[rows, k] y[k, columns]: what the tokens of a batch give a weight.
 *
 * In: strips of the product, block by block of k (step_matmul.c). Out: their results. Steps of k that are not zero are
 * counted, from the first one of a step of training on, over all its parts: a step is zero if its numbers of x or those
 * of y are. Each TFM_COUNTED_CHAIN of them are a chain of FMAs that begins at 0, and the chains are added in order. So
 * no bit depends on padding, on the rows that are left out, on parts or on threads, and a long batch loses no more than
 * a product of as many steps.
 *
 * The first chain is in c. A later one that a single call computes is added to c by its kernel. Others are beside c
 * while they go on, in scratch, or, if they go on in the next run, in the rests of the outputs. Refuses nothing. */
#include "matmul.h"
#include "one_row.h"
#include "partial_sums.h"
#include "tfm/gradient_steps.h"

// ---- counting ----

static bool has_numbers(const char *x, int64_t stride, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (*(const float *)(const void *)(x + i * stride) != 0) return true;
  return false;
}

/* Whether step k of some item that has it is not zero. */
static bool counts(const tfm_context *context, const Matmul *m, int64_t k) {
  const int row = m->step->rank - 2, column = m->step->rank - 1;
  for (int64_t item = 0; item < m->items; item++) {
    LiveRows steps = m->live;
    int64_t ignored;
    if (steps.mask && m->step->live_steps != TFM_STEPS_SHARED) steps.mask += item * m->k;
    if (m->items > 1 && steps.mask && !live_run(&steps, true, k, k + 1, &ignored)) continue;
    const char *x = matmul_item(context, m->step, m->x, item) + k * m->x->strides[column];
    const char *y = matmul_item(context, m->step, m->y, item) + k * m->y->strides[row];
    if (has_numbers(y, m->y->strides[column], m->columns) && has_numbers(x, m->x->strides[row], m->rows)) return true;
  }
  return false;
}

/* Every thread counts for itself. Of several items each step is looked at, of one those that are live. */
static void count(const Walker *walker, const tfm_step *step, Matmul *m) {
  StepState *state = &walker->context->run.steps[step - walker->context->program->steps];
  const int32_t turn = walker->context->run.turn;
  CountedChain *chains = (CountedChain *)(void *)walker->scratch;
  int64_t n = 0, counted = m->goes_on ? atomic_load_explicit(&state->counted[turn], memory_order_relaxed) : 0;
  m->counted = (CountedChains){.items = chains, .before = counted};
  bool is_open = false;
  int64_t first = 0, end = m->k;
  for (int64_t at = 0; at < m->k; at = end) {
    if (m->live.mask && m->items == 1) end = live_run(&m->live, true, at, m->k, &first);
    if (m->live.mask && m->items == 1 && (end += first) == first) break;
    for (int64_t k = first; k < end; k++) {
      if (!is_open) chains[n] = (CountedChain){.start = k, .end = m->k};
      is_open = true;
      if (!counts(walker->context, m, k) || ++counted % TFM_COUNTED_CHAIN) continue;
      chains[n].end = k + 1;
      chains[n++].is_complete = true;
      is_open = false;
    }
  }
  m->counted.n = n + (is_open && counted % TFM_COUNTED_CHAIN != 0);
  m->counted.after = counted;
  atomic_store_explicit(&state->counted[!turn], counted, memory_order_relaxed);
}

// ---- adding ----

typedef struct Chain { /* of a strip */
  const CountedChain *of;
  float *at; /* beside c */
  int64_t stride;
  bool is_first, has_begun; /* the first of all; it is not 0 */
} Chain;

static void add_to_c(const Strip *s, const Chain *chain) {
  const PartialSums sums = {.c = s->c, .c_stride = s->c_stride, .waiting = chain->at, .stride = chain->stride,
                            .rows = s->rows, .columns = matmul_columns(s->m, s->unit)};
  partial_take(&sums, 1, true);
}

/* The steps of the block that belong to the chain. */
static void run_chain(const Strip *s, Chain *chain) {
  const int64_t end = least_of(chain->of->end, s->k + s->block);
  int64_t first, n, next, more;
  n = matmul_live_steps(s->unit, greatest_of(chain->of->start, s->k), end, &first);
  for (; n > 0; first = next, n = more) {
    more = matmul_live_steps(s->unit, first + n, end, &next);
    if (chain->is_first) {
      matmul_some_tiles(s, first, n, chain->has_begun || s->m->goes_on, s->c, s->c_stride);
    } else if (!chain->has_begun && more == 0 && chain->of->is_complete && chain->of->end == end) {
      matmul_some_tiles(s, first, n, TFM_ADD, s->c, s->c_stride);
      return;
    } else {
      matmul_some_tiles(s, first, n, chain->has_begun, chain->at, chain->stride);
    }
    chain->has_begun = true;
  }
  if (!chain->is_first && chain->has_begun && chain->of->is_complete && chain->of->end == end) add_to_c(s, chain);
}

/* The chain that the run ends in is added if no run follows; else the next one finds it. */
static void end_run(const Strip *s, const Chain *chain) {
  if (s->walker->context->run.waits && s->m->step->in_order == TFM_ORDER_GOES_ON) {
    if (!chain->has_begun) matmul_some_tiles(s, s->k, 0, 0, chain->at, chain->stride);
  } else if (chain->has_begun) {
    add_to_c(s, chain);
  }
}

static void add(const Strip *s) {
  const CountedChains *counted = &s->m->counted;
  const int64_t goes_on = counted->before % TFM_COUNTED_CHAIN, ends = counted->after % TFM_COUNTED_CHAIN;
  const bool may_go_on = s->m->step->in_order == TFM_ORDER_GOES_ON;
  float *rest = may_go_on ? gradient_rest(s->walker->context, &s->m->step->c, s->c) : NULL;
  Chain chain = {.at = rest ? rest : s->chain, .stride = rest ? s->c_stride : s->chain_stride,
                 .has_begun = goes_on != 0};
  bool is_written = s->k > 0 || s->m->goes_on;
  for (int64_t i = 0; i < counted->n && counted->items[i].start < s->k + s->block; i++) {
    int64_t ignored;
    chain.of = &counted->items[i];
    chain.is_first = counted->before / TFM_COUNTED_CHAIN + i == 0;
    if (chain.of->end <= s->k) continue;
    chain.has_begun = (i == 0 && goes_on) || (chain.of->start < s->k &&
                                              matmul_live_steps(s->unit, chain.of->start, s->k, &ignored) > 0);
    if (!is_written && (!chain.is_first || matmul_live_steps(s->unit, s->k, s->k + s->block, &ignored) == 0))
      matmul_some_tiles(s, s->k, 0, 0, s->c, s->c_stride);
    is_written = true;
    run_chain(s, &chain);
  }
  if (!is_written) matmul_some_tiles(s, s->k, 0, 0, s->c, s->c_stride);
  if (s->k + s->block == s->m->k && ends && counted->after > TFM_COUNTED_CHAIN) end_run(s, &chain);
}

const struct tfm_gradient_sums *tfm_gradient_sums(void) {
  static const struct tfm_gradient_sums functions = {.one_row = gradient_of_one_row, .count = count, .add = add};
  return &functions;
}

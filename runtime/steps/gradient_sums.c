/* A gradient of several rows, x[rows, k] y[k, columns]: what the tokens of a batch give a weight.
 *
 * In: strips of the product, block by block of k (matmul_tiles.c). Out: their results. Steps of k that are not zero are
 * counted, from the first one of a step of training on, over all its parts: a step is zero if its numbers of x or those
 * of y are. Each TFM_COUNTED_CHAIN of them are a chain of FMAs that begins at 0, and the chains are added in order. So
 * no bit depends on padding, on the rows that are left out, on parts or on threads, and a long batch loses no more than
 * a product of as many steps.
 *
 * The first chain is in c. A later one that a single call computes is added to c by its kernel. Others are beside c
 * while they go on, in scratch, or, if they go on in the next run, in the rests of the outputs. Refuses nothing. */
#include <string.h>

#include "steps/matmul_tiles.h"
#include "steps/one_row.h"
#include "steps/partial_sums.h"
#include "tfm/abi/gradient_steps.h"

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
    const char *x = matmul_item(context, m, m->x, item) + k * m->x->strides[column];
    const char *y = matmul_item(context, m, m->y, item) + k * m->y->strides[row];
    if (has_numbers(y, m->y->strides[column], m->columns) && has_numbers(x, m->x->strides[row], m->rows)) return true;
  }
  return false;
}

/* The first numbers of the steps of item 0, where all that counts may be seen in them; NULL: it may not. */
typedef struct FirstNumbers {
  const char *x, *y;
  int64_t x_step, y_step;
} FirstNumbers;
typedef float Floats __attribute__((vector_size(16)));
typedef int64_t Halves __attribute__((vector_size(16)));
enum { SEEN = 2 * sizeof(Floats) / sizeof(float) }; /* so many: a relu makes half of them 0 */

static FirstNumbers first_numbers(const tfm_context *context, const Matmul *m) {
  const int row = m->step->rank - 2, column = m->step->rank - 1;
  const bool are_neighbours = m->x->strides[row] == sizeof(float) && m->y->strides[column] == sizeof(float);
  const bool is_seen = m->items == 1 || !m->live.mask || m->step->live_steps == TFM_STEPS_SHARED;
  if (!are_neighbours || !is_seen || m->rows < SEEN || m->columns < SEEN) return (FirstNumbers){NULL, NULL, 0, 0};
  return (FirstNumbers){matmul_item(context, m, m->x, 0), matmul_item(context, m, m->y, 0), m->x->strides[column],
                        m->y->strides[row]};
}

/* Compared as numbers: -0 is 0. */
static inline bool begins_with_numbers(const char *line) {
  Floats first, next;
  memcpy(&first, line, sizeof first);
  memcpy(&next, line + sizeof first, sizeof next);
  const Halves found = (Halves)(first != 0) | (Halves)(next != 0);
  return (found[0] | found[1]) != 0;
}

/* How many of the n steps from k on are seen to count, one behind the other. */
static int64_t evident_steps(const FirstNumbers *at, int64_t k, int64_t n) {
  int64_t i = 0;
  if (!at->x) return 0;
  const char *x = at->x + k * at->x_step, *y = at->y + k * at->y_step;
  for (; i < n && begins_with_numbers(x) && begins_with_numbers(y); i++, x += at->x_step, y += at->y_step) continue;
  return i;
}

/* Every thread counts for itself. Of several items each step is looked at, of one those that are live. */
static void count(const Walker *walker, const tfm_step *step, Matmul *m) {
  StepState *state = &walker->context->run.steps[step - walker->context->program->steps];
  const int32_t turn = walker->context->run.turn;
  CountedChain *chains = (CountedChain *)(void *)walker->scratch;
  int64_t n = 0, counted = m->goes_on ? atomic_load_explicit(&state->counted[turn], memory_order_relaxed) : 0;
  m->counted = (CountedChains){.items = chains, .before = counted};
  const FirstNumbers numbers = first_numbers(walker->context, m);
  bool is_open = false;
  int64_t first = 0, end = m->k;
  for (int64_t at = 0; at < m->k; at = end) {
    if (m->live.mask && m->items == 1) end = live_run(&m->live, true, at, m->k, &first);
    if (m->live.mask && m->items == 1 && (end += first) == first) break;
    for (int64_t k = first; k < end;) {
      if (!is_open) chains[n] = (CountedChain){.start = k, .end = m->k};
      is_open = true;
      const int64_t most = least_of(end - k, TFM_COUNTED_CHAIN - counted % TFM_COUNTED_CHAIN);
      const int64_t evident = evident_steps(&numbers, k, most);
      const int64_t more = evident ? evident : counts(walker->context, m, k);
      k += evident ? evident : 1;
      counted += more;
      if (!more || counted % TFM_COUNTED_CHAIN) continue;
      chains[n].end = k;
      chains[n++].is_complete = true;
      is_open = false;
    }
  }
  if (is_open && counted % TFM_COUNTED_CHAIN)
    chains[n++].is_complete = m->step->in_order == TFM_ORDER_ONE_RUN || !walker->context->run.waits;
  m->counted.n = n;
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

static void add_to_c(const MatmulJob *job, const Chain *chain) {
  const PartialSums sums = {.c = job->c, .c_stride = job->c_stride, .waiting = chain->at, .stride = chain->stride,
                            .rows = job->rows, .columns = matmul_columns(job->unit)};
  partial_take(&sums, 1, true);
}

/* The steps of the block that belong to the chain. Zeroes among them may make it longer than those that are counted. */
static void run_counted_chain(const MatmulJob *job, Chain *chain) {
  const int64_t end = least_of(chain->of->end, job->k + job->block);
  const bool ends = chain->of->is_complete && chain->of->end == end;
  int64_t first, n, next, more;
  n = matmul_live_steps(job->unit, greatest_of(chain->of->start, job->k), end, &first);
  for (; n > 0; first = next, n = more) {
    n = least_of(n, TFM_COUNTED_CHAIN);
    more = matmul_live_steps(job->unit, first + n, end, &next);
    if (chain->is_first) {
      matmul_some_tiles(job, first, n, chain->has_begun || job->unit->m->goes_on, job->c, job->c_stride);
    } else if (!chain->has_begun && more == 0 && ends) {
      matmul_some_tiles(job, first, n, TFM_ADD, job->c, job->c_stride);
      return;
    } else {
      matmul_some_tiles(job, first, n, chain->has_begun, chain->at, chain->stride);
    }
    chain->has_begun = true;
  }
  if (!chain->is_first && chain->has_begun && ends) add_to_c(job, chain);
}

/* How many chains from number i on, which has not begun, are whole within the block and follow one another without
 * gaps: a kernel takes them at once. The last one may be shorter than the others. */
static int64_t solid_chains(const MatmulJob *job, int64_t i) {
  const CountedChains *counted = &job->unit->m->counted;
  const int64_t begin = counted->items[i].start;
  int64_t n = 0, first;
  for (; i + n < counted->n; n++) {
    const CountedChain *chain = &counted->items[i + n];
    const bool follows = chain->start == begin + n * TFM_COUNTED_CHAIN;
    const bool is_within = chain->is_complete && chain->end <= job->k + job->block &&
                           chain->end - chain->start <= TFM_COUNTED_CHAIN;
    if (!follows || !is_within) break;
    if (matmul_live_steps(job->unit, chain->start, chain->end, &first) < chain->end - chain->start) break;
  }
  return n;
}

/* The chain that the run ends in without steps of its own is added if no run follows; else the next one finds it. */
static void end_run(const MatmulJob *job, const Chain *chain) {
  if (job->unit->walker->context->run.waits && job->unit->m->step->in_order == TFM_ORDER_GOES_ON) {
    if (!chain->has_begun) matmul_some_tiles(job, job->k, 0, 0, chain->at, chain->stride);
  } else if (job->unit->m->counted.n == 0) {
    add_to_c(job, chain);
  }
}

/* Chain number i, or it and those after it that a kernel takes too; returns how many. */
static int64_t run_some(const MatmulJob *job, Chain *chain, int64_t i) {
  const CountedChains *counted = &job->unit->m->counted;
  int64_t ignored;
  chain->of = &counted->items[i];
  chain->is_first = counted->before / TFM_COUNTED_CHAIN + i == 0;
  chain->has_begun = (i == 0 && counted->before % TFM_COUNTED_CHAIN) ||
                     (chain->of->start < job->k &&
                      matmul_live_steps(job->unit, chain->of->start, job->k, &ignored) > 0);
  const int64_t n = chain->has_begun || chain->of->start < job->k ? 0 : solid_chains(job, i);
  if (n == 0) {
    run_counted_chain(job, chain);
    return 1;
  }
  matmul_some_tiles(job, chain->of->start, counted->items[i + n - 1].end - chain->of->start,
                    !chain->is_first ? TFM_ADD : job->unit->m->goes_on, job->c, job->c_stride);
  return n;
}

static void add_counted(const MatmulJob *job) {
  const CountedChains *counted = &job->unit->m->counted;
  const bool may_go_on = job->unit->m->step->in_order == TFM_ORDER_GOES_ON;
  float *rest = may_go_on ? gradient_rest(job->unit->walker->context, &job->unit->m->step->c, job->c) : NULL;
  Chain chain = {.at = rest ? rest : job->chain, .stride = rest ? job->c_stride : job->chain_stride,
                 .has_begun = counted->before % TFM_COUNTED_CHAIN != 0};
  int64_t i = 0, ignored;
  while (i < counted->n && counted->items[i].end <= job->k) i++;
  if (job->k == 0 && !job->unit->m->goes_on &&
      (!counted->n || counted->before >= TFM_COUNTED_CHAIN ||
       matmul_live_steps(job->unit, 0, least_of(counted->items->end, job->block), &ignored) == 0))
    matmul_some_tiles(job, 0, 0, 0, job->c, job->c_stride);
  while (i < counted->n && counted->items[i].start < job->k + job->block) i += run_some(job, &chain, i);
  const bool is_open = counted->after > TFM_COUNTED_CHAIN && counted->after % TFM_COUNTED_CHAIN;
  if (job->k + job->block == job->unit->m->k && is_open) end_run(job, &chain);
}

static const GradientSums functions = {.one_row = gradient_of_one_row, .count = count, .add = add_counted};

void step_matmul_gradient(Walker *walker, const tfm_step *step) { matmul_run(walker, step, &functions); }

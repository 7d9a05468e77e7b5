/* The best tokens of a run: which programs allow the search, the search in each unit, and putting the threads' results
 * together.
 *
 * In: tiles of logits. Out: the best tokens of each row, the logits of tokens that are set apart, and the logsumexp of
 * the row. best_tokens.h says why no matrix of logits is written. Refused are only programs of another form
 * (best_create); logits that are NaN or +inf are reported in the result. */
#include "decode/loops/best_tokens.h"

#include <math.h>

#include "machine/fp_mode.h"
#include "decode/loops/logit_row.h"
#include "machine/tuning.h"
#include "steps/walker.h"
#include "tfm/abi/double_functions.h"

// ---- which programs allow it ----

enum {
  MOST_VOCAB = 1 << 20, /* beyond, units of a run would have to be coarser than a consumer's are */
  OWN_BITS = 63         /* outputs from this number on share a bit of tfm_step.serves */
};

/* The bit of an output in tfm_step.serves; 0: it shares its bit with others, so that nothing can be concluded from
 * it. */
static uint64_t output_bit(uint32_t output) { return output < OWN_BITS ? (uint64_t)1 << output : 0; }

/* Whether the size is the product of these two of the run-time sizes; TFM_NONE counts as one. */
static bool is_product(const tfm_program *program, tfm_size size, uint32_t a, uint32_t b) {
  const tfm_polynomial *polynomial = &program->polynomials[size];
  const tfm_term *term = &program->terms[polynomial->first_term];
  if (polynomial->n_terms != 1 || term->coefficient != 1 || term->degree != (a != TFM_NONE) + (b != TFM_NONE))
    return false;
  bool has_a = a == TFM_NONE, has_b = b == TFM_NONE;
  for (uint8_t i = 0; i < term->degree; i++) {
    has_a |= term->symbols[i] == a;
    has_b |= term->symbols[i] == b;
  }
  return has_a && has_b;
}

/* Whether the size is this constant. */
static bool is_size_number(const tfm_program *program, tfm_size size, int64_t number) {
  const tfm_polynomial *polynomial = &program->polynomials[size];
  if (polynomial->n_terms == 0) return number == 0;
  const tfm_term *term = &program->terms[polynomial->first_term];
  return polynomial->n_terms == 1 && term->degree == 0 && term->coefficient == number;
}

/* Whether the step writes exactly the logits, row after row without gaps. */
static bool writes_logits(const tfm_decoding *decoding, const tfm_step *step) {
  if (step->kind != TFM_STEP_GEMM) return false;
  const tfm_program *program = decoding->step;
  const tfm_gemm_step *gemm = &program->gemms[step->index];
  return gemm->c.space == TFM_SPACE_OUTPUT && gemm->c.index == decoding->logits && gemm->n == decoding->vocab &&
         is_size_number(program, gemm->c.offset, 0) && is_size_number(program, gemm->c.strides[0], gemm->n) &&
         is_product(program, gemm->rows, decoding->rows, decoding->kept);
}

/* The bit of the output with the logsumexp; 0: the program has none. */
static uint64_t sums_bit(const tfm_decoding *decoding) {
  return decoding->logsumexp == TFM_NONE ? 0 : output_bit(decoding->logsumexp);
}

/* The last step that the logits need, TFM_NONE if it is not a product that writes them. Steps behind it that read the
 * logits are for the logsumexp alone, because a step serves what its readers serve. */
static uint32_t find_product(const tfm_decoding *decoding) {
  const tfm_program *program = decoding->step;
  const uint64_t logits = output_bit(decoding->logits);
  if (decoding->vocab > MOST_VOCAB || !logits) return TFM_NONE;
  for (uint32_t i = program->n_steps; i-- > 0;) {
    const uint64_t serves = program->steps[i].serves;
    if (!(serves & logits)) continue;
    return !(serves & ~(logits | sums_bit(decoding))) && writes_logits(decoding, &program->steps[i]) ? i : TFM_NONE;
  }
  return TFM_NONE;
}

/* The next step from *step on that serves the logsumexp alone and reduces the logits along the tokens; NULL: there is
 * none. */
static const tfm_row_step *next_reduction(const tfm_decoding *decoding, uint32_t *step) {
  const tfm_program *program = decoding->step;
  while (*step < program->n_steps) {
    const tfm_step *candidate = &program->steps[(*step)++];
    if (candidate->serves != sums_bit(decoding) || candidate->kind != TFM_STEP_ROW) continue;
    const tfm_row_step *row = &program->rows[candidate->index];
    const tfm_operand *logits = &program->operands[row->first_operand + 1];
    if (row->reduce == 1 && row->n_operands > 1 && logits->space == TFM_SPACE_OUTPUT &&
        logits->index == decoding->logits)
      return row;
  }
  return NULL;
}

/* The program computes log(sum(exp(logits - m))) + m: the first reduction gives m, the second, which reads it, the
 * sum. The kernel of the second is used on the columns of a unit. NULL: the logsumexp is computed in another way. */
static tfm_row_kernel find_exponentials(const BestSearch *search, const tfm_context *context) {
  uint32_t step = search->consumed.step;
  const tfm_operand *operands = context->program->operands;
  const tfm_row_step *largest = next_reduction(search->decoding, &step), *sum = next_reduction(search->decoding, &step);
  if (!largest || !sum || largest->n_operands != 2 || sum->n_operands != 3) return NULL;
  const tfm_operand *most = &operands[largest->first_operand], *read = &operands[sum->first_operand + 2];
  if (most->space != TFM_SPACE_BUFFER || read->space != TFM_SPACE_BUFFER || most->index != read->index) return NULL;
  return KERNEL_OF(tfm_row_kernel, context, sum->kernel);
}

// ---- the search ----

/* The order of the result: the larger logit, then the lower token. It is total, so the result does not depend on the
 * order in which tokens are seen. */
static bool is_better(tfm_best_token a, tfm_best_token b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/* Puts a token that is better than the last of the n best into its place among them. */
static void insert(tfm_best_token *best, int64_t n, tfm_best_token token) {
  int64_t place = n - 1;
  for (; place > 0 && is_better(token, best[place - 1]); place--) best[place] = best[place - 1];
  best[place] = token;
}

/* Moves the logits of tokens in [first, first + n) that are set apart to where the caller wants them. -inf takes their
 * place, so that they are not among the best. */
static void set_apart(const uint64_t *apart, float *logits, float *c, int64_t first, int64_t n) {
  for (int64_t word = first / 64; word * 64 < first + n; word++) {
    for (uint64_t left = apart[word]; left; left &= left - 1) {
      const int64_t token = word * 64 + __builtin_ctzll(left), column = token - first;
      if (column < 0 || column >= n) continue;
      logits[token] = c[column];
      c[column] = -INFINITY;
    }
  }
}

/* Takes what is good enough of the logits of tokens [first, first + n), of which none is greater than `most`. Most
 * units have nothing that is, and cost one comparison. */
static void keep_greatest(tfm_best_token *best, int64_t n_best, const float *c, int64_t first, int64_t n, float most) {
  tfm_best_token *last = &best[n_best - 1];
  if (!(most >= last->logit)) return;
  for (int64_t i = row_find(c, 0, n, last->logit); i < n; i = row_find(c, i + 1, n, last->logit)) {
    const tfm_best_token token = {c[i], (int32_t)(first + i)};
    if (token.logit > -INFINITY && is_better(token, *last)) insert(best, n_best, token);
  }
}

/* The position of a unit among the numbers of its first row; those of the next row follow `units` further on. */
static float *numbers_at(const BestSearch *search, float *numbers, const GemmUnit *unit) {
  return numbers + unit->first_row * search->units + unit->first_column / search->columns;
}

/* The sum of exp(logit - most) of each row of the unit, by the kernel of the program itself. */
static void sum_exponentials(const BestSearch *search, const float *c, int64_t stride, const GemmUnit *unit) {
  const int64_t bytes = sizeof *c, next = search->units * bytes;
  int32_t faults = 0; /* there can't be any */
  tfm_row_args args = {.rows = unit->rows, .columns = unit->columns, .faults = &faults};
  args.operands[0] = (tfm_row_operand){(char *)numbers_at(search, search->sums, unit), next, 0};
  args.operands[1] = (tfm_row_operand){(char *)(uintptr_t)c, stride * bytes, bytes}; /* which is only read */
  args.operands[2] = (tfm_row_operand){(char *)numbers_at(search, search->most, unit), next, 0};
  search->exponentials(&args);
}

/* Called by several threads, each with units of its own. The sum comes before tokens are set apart, since it includes
 * them. */
static void take_unit(const GemmConsumer *consumer, int32_t thread, float *c, int64_t stride, const GemmUnit *unit) {
  const BestSearch *search = (const BestSearch *)consumer;
  const tfm_best_call *call = search->call;
  const int64_t vocab = search->decoding->vocab;
  float *most = numbers_at(search, search->most, unit);
  for (int64_t i = 0; i < unit->rows; i++)
    if (!row_peak(c + i * stride, unit->columns, &most[i * search->units])) most[i * search->units] = NAN;
  if (call->logsumexp) sum_exponentials(search, c, stride, unit);
  for (int64_t i = 0; i < unit->rows; i++, c += stride) {
    const int64_t row = unit->first_row + i, member = search->members[row];
    if (call->apart)
      set_apart(call->apart + member * row_words(vocab), call->logits + member * vocab, c, unit->first_column,
                unit->columns);
    keep_greatest(search->found + (thread * search->stride + row) * call->n_best, call->n_best, c, unit->first_column,
                  unit->columns, most[i * search->units]);
  }
}

// ---- a decoder's ----

/* Units have so many columns that a block of rows of them stays in the second-level cache, and there are enough units
 * for the threads. Their columns depend on the vocabulary alone, never on the number of threads. */
bool best_create(BestSearch *search, const tfm_decoding *decoding, const tfm_context *context) {
  *search = (BestSearch){.consumer = {.take = take_unit}, .consumed = {.step = find_product(decoding)},
                         .decoding = decoding};
  if (search->consumed.step == TFM_NONE || !(search->exponentials = find_exponentials(search, context))) return false;
  const tfm_gemm_step *gemm = &decoding->step->gemms[decoding->step->steps[search->consumed.step].index];
  const int64_t panels = least_of(ceil_div(gemm->n, gemm->panel) / LEAST_BEST_UNITS, BEST_UNIT_COLUMNS / gemm->panel);
  search->consumed.panels = greatest_of(1, panels);
  search->columns = search->consumed.panels * gemm->panel;
  search->units = ceil_div(gemm->n, search->columns);
  return true;
}

void best_place(BestSearch *search, Layout *layout, int64_t rows, int32_t threads) {
  enum { APART = ALIGNMENT / sizeof *search->found }; /* threads share no cache line */
  search->stride = round_up(rows, APART);
  search->found = layout_take(layout, threads * search->stride * MOST_BEST, sizeof *search->found);
  search->most = layout_take(layout, threads ? rows * search->units : 0, sizeof *search->most);
  search->sums = layout_take(layout, threads ? rows * search->units : 0, sizeof *search->sums);
}

void best_begin(BestSearch *search, const tfm_best_call *call, const int64_t *members, int64_t rows, int32_t threads) {
  search->call = call;
  search->members = members;
  for (int32_t thread = 0; thread < threads; thread++)
    for (int64_t i = 0; i < rows * call->n_best; i++)
      search->found[thread * search->stride * call->n_best + i] = (tfm_best_token){-INFINITY, TFM_NO_TOKEN};
}

/* log(sum(exp)) of a row from the numbers of its units, at least one of which is above -inf. Overwrites `most`. */
static float logsumexp(float *most, const float *sums, int64_t units, float greatest) {
  double sum = 0;
  row_exp(most, units, greatest, most);
  for (int64_t i = 0; i < units; i++)
    if (most[i] > 0) sum += (double)most[i] * (double)sums[i]; /* no sum of a unit of -inf, which would be NaN */
  return (float)((double)greatest + double_log(sum));
}

/* Unit by unit, as take_unit does it: a sum over the whole row would differ in the last bits, and of two beams that are
 * nearly equal the other one would go on. */
void best_logsumexp(BestSearch *search, const float *logits, int64_t rows, float *sums) {
  const int64_t vocab = search->decoding->vocab;
  uint64_t fp_mode = fp_mode_enter();
  for (int64_t row = 0; row < rows; row++, logits += vocab) {
    for (int64_t first = 0, unit = 0; first < vocab; first += search->columns, unit++) {
      const int64_t columns = least_of(search->columns, vocab - first);
      const GemmUnit whole = {.rows = 1, .first_column = first, .columns = columns};
      if (!row_peak(logits + first, columns, &search->most[unit])) search->most[unit] = NAN;
      sum_exponentials(search, logits + first, vocab, &whole);
    }
    float greatest;
    const bool are_numbers = row_peak(search->most, search->units, &greatest);
    const bool has_sum = are_numbers && greatest > -INFINITY;
    sums[row] = has_sum ? logsumexp(search->most, search->sums, search->units, greatest) : NAN;
  }
  fp_mode_leave(fp_mode);
}

/* Merges the lists of the threads; each is in order, so the first that is not good enough ends it. */
static void end_row(const BestSearch *search, int64_t row, int32_t threads) {
  const tfm_best_call *call = search->call;
  const int64_t n = call->n_best, member = search->members[row], place = row * search->units;
  tfm_best_token *best = call->best + member * n;
  float greatest;
  const bool are_numbers = row_peak(search->most + place, search->units, &greatest);
  for (int64_t i = 0; i < n; i++) best[i] = search->found[row * n + i];
  for (int32_t thread = 1; thread < threads; thread++) {
    const tfm_best_token *found = search->found + (thread * search->stride + row) * n;
    for (int64_t i = 0; i < n && is_better(found[i], best[n - 1]); i++) insert(best, n, found[i]);
  }
  if (!are_numbers) best[0].logit = NAN;
  if (!call->logsumexp) return;
  const bool has_sum = are_numbers && greatest > -INFINITY;
  call->logsumexp[member] =
      has_sum ? logsumexp(search->most + place, search->sums + place, search->units, greatest) : NAN;
}

/* After the run, hence in the caller's mode of floating-point numbers, which must not change the sums. */
void best_end(BestSearch *search, int64_t rows, int32_t threads) {
  uint64_t fp_mode = fp_mode_enter();
  for (int64_t row = 0; row < rows; row++) end_row(search, row, threads);
  fp_mode_leave(fp_mode);
}

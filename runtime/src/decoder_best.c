/* In: tiles of scores. Out: of each row the largest score and its token, and the scores of tokens that are set apart. */
#include "decoder_best.h"

#include <math.h>

#include "generate_row.h"

/* --- Whether a decoding has it ------------------------------------------------------------------------------------- */

enum {
  MOST_BEST_VOCAB = 1 << 20, /* beyond, units of a run would have to be coarser than a consumer's are */
  OWN_BITS = 63              /* outputs from this number on share a bit of tfm_step.serves */
};

static uint64_t output_bit(uint32_t output) { return output < OWN_BITS ? (uint64_t)1 << output : 0; }

/* Whether the size is the product of these two of the run-time sizes; TFM_NONE counts as one. */
static bool is_product(const tfm_program *program, tfm_size size, uint32_t a, uint32_t b) {
  const tfm_polynomial *polynomial = &program->polynomials[size];
  const tfm_term *term = &program->terms[polynomial->first_term];
  if (polynomial->n_terms != 1 || term->coefficient != 1 || term->degree != (a != TFM_NONE) + (b != TFM_NONE)) return false;
  bool has_a = a == TFM_NONE, has_b = b == TFM_NONE;
  for (uint8_t i = 0; i < term->degree; i++) {
    has_a |= term->symbols[i] == a;
    has_b |= term->symbols[i] == b;
  }
  return has_a && has_b;
}

static bool is_number(const tfm_program *program, tfm_size size, int64_t number) {
  const tfm_polynomial *polynomial = &program->polynomials[size];
  if (polynomial->n_terms == 0) return number == 0;
  const tfm_term *term = &program->terms[polynomial->first_term];
  return polynomial->n_terms == 1 && term->degree == 0 && term->coefficient == number;
}

/* Whether the step writes all scores, row after row. */
static bool writes_scores(const tfm_decoding *decoding, const tfm_step *step) {
  if (step->kind != TFM_STEP_GEMM) return false;
  const tfm_program *program = decoding->step;
  const tfm_gemm_step *gemm = &program->gemms[step->index];
  return gemm->c.space == TFM_SPACE_OUTPUT && gemm->c.index == decoding->scores && gemm->n == decoding->vocab &&
         is_number(program, gemm->c.offset, 0) && is_number(program, gemm->c.strides[0], gemm->n) &&
         is_product(program, gemm->rows, decoding->rows, decoding->kept);
}

/* The last step that the scores need; steps behind it that read them are for the sums alone, because a step serves what
 * its readers serve. */
uint32_t best_find_step(const tfm_decoding *decoding) {
  const tfm_program *program = decoding->step;
  const uint64_t scores = output_bit(decoding->scores);
  const uint64_t sums = decoding->log_sum == TFM_NONE ? 0 : output_bit(decoding->log_sum);
  if (decoding->vocab > MOST_BEST_VOCAB || !scores) return TFM_NONE;
  for (uint32_t i = program->n_steps; i-- > 0;) {
    const uint64_t serves = program->steps[i].serves;
    if (!(serves & scores)) continue;
    return !(serves & ~(scores | sums)) && writes_scores(decoding, &program->steps[i]) ? i : TFM_NONE;
  }
  return TFM_NONE;
}

/* --- The search ---------------------------------------------------------------------------------------------------- */

/* What was no number stays so: nothing is larger than NaN. */
static void take_if_better(tfm_best_token *best, float score, int64_t token) {
  if (score > best->score || (score == best->score && token < best->token)) *best = (tfm_best_token){score, (int32_t)token};
}

/* Moves the scores of tokens [first, first + n) that are set apart to where the caller wants them; false: one is NaN or
 * +inf. */
static bool set_apart(const uint64_t *apart, float *scores, float *c, int64_t first, int64_t n) {
  bool are_fine = true;
  for (int64_t word = first / 64; word * 64 < first + n; word++) {
    for (uint64_t left = apart[word]; left; left &= left - 1) {
      const int64_t token = word * 64 + __builtin_ctzll(left), column = token - first;
      if (column < 0 || column >= n) continue;
      are_fine &= c[column] < INFINITY;
      scores[token] = c[column];
      c[column] = -INFINITY;
    }
  }
  return are_fine;
}

static void take_row(const BestSearch *search, tfm_best_token *best, int64_t row, float *c, int64_t first, int64_t n) {
  const BestCall *call = search->call;
  const int64_t member = search->members[row];
  float most;
  bool are_fine = true;
  if (call->apart) {
    const uint64_t *apart = call->apart + member * row_words(search->vocab);
    are_fine = set_apart(apart, call->scores + member * search->vocab, c, first, n);
  }
  are_fine &= row_peak(c, n, &most);
  if (!are_fine) best->score = NAN;
  if (most == -INFINITY || !(most > best->score || (most == best->score && first < best->token))) return;
  int64_t column = 0;
  while (c[column] != most) column++;
  take_if_better(best, most, first + column);
}

static void take_unit(const GemmConsumer *consumer, int32_t thread, float *c, int64_t stride, const GemmUnit *unit) {
  const BestSearch *search = (const BestSearch *)consumer;
  tfm_best_token *found = search->found + thread * search->stride + unit->first_row;
  for (int64_t i = 0; i < unit->rows; i++)
    take_row(search, &found[i], unit->first_row + i, c + i * stride, unit->first_column, unit->columns);
}

void best_create(BestSearch *search, const tfm_decoding *decoding, uint32_t step) {
  *search = (BestSearch){.consumer = {.step = step, .take = take_unit}, .vocab = decoding->vocab};
}

void best_begin(BestSearch *search, const BestCall *call, const int64_t *members, int64_t rows, int32_t threads) {
  search->call = call;
  search->members = members;
  search->consumer.wanted = true;
  for (int32_t thread = 0; thread < threads; thread++)
    for (int64_t row = 0; row < rows; row++)
      search->found[thread * search->stride + row] = (tfm_best_token){-INFINITY, TFM_NO_TOKEN};
}

void best_end(BestSearch *search, int64_t rows, int32_t threads) {
  search->consumer.wanted = false;
  for (int64_t row = 0; row < rows; row++) {
    tfm_best_token best = search->found[row];
    for (int32_t thread = 1; thread < threads; thread++) {
      const tfm_best_token *found = &search->found[thread * search->stride + row];
      if (isnan(found->score)) best.score = NAN;
      else take_if_better(&best, found->score, found->token);
    }
    search->call->best[search->members[row]] = best;
  }
}

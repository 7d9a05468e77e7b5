/* Steps of a few tokens: one row of GPT-2 small goes on by 1, 2, 4 and 8 tokens at once, with the logits of each, as a
 * writer does that has guessed them; weights in f32, bf16, int8 and int4, by one thread and by all.
 *
 * Out: times beside the roofline of the probe of the same round, in which weights are read once, and each step's time
 * over that of the step of one token. Weights are random and packed as users' are, because rows in int8 take longer
 * where their numbers are not about normal. A step is undone by truncating. */
#include <stdio.h>
#include <stdlib.h>

#include "compiling.h"
#include "measure/roofline.h"
#include "subject.h"
#include "tfm/decode.h"

static const char file[] = "examples/gpt2/gpt2.tfm";
static const char *const forms[] = {"f32", "bf16", "int8", "int4"};
static const int64_t token_counts[] = {1, 2, 4, 8};
enum {
  N_FORMS = sizeof forms / sizeof *forms,
  N_COUNTS = sizeof token_counts / sizeof *token_counts,
  PAST = 64, /* tokens of the row before the step */
  MOST_TOKENS = 8
};

static const int32_t tokens[PAST] = {464, 3290, 318, 257, 1332, 13, 632, 373}; /* the others are token 0 */

typedef struct Row { /* a decoder that has one; lives as long as the program */
  const tfm_decoding *decoding;
  tfm_decoder *decoder;
  float *logits;
} Row;

typedef struct StepCase {
  const Row *row;
  int64_t *symbols;
  tfm_decoder_row step;
} StepCase;

static void run(void *context) {
  StepCase *item = context;
  tfm_decoder_step(item->row->decoder, 1, &item->step, item->step.n_tokens, item->row->logits, NULL, NULL);
  tfm_decoder_truncate(item->row->decoder, 0, PAST, NULL);
}

static double least(void *context, const Probe *probe) {
  const StepCase *item = context;
  return roofline_seconds_at(item->row->decoding->step, item->symbols, probe);
}

/* The values of the step's sizes: one row, its earlier positions, its new tokens. */
static int64_t *symbols_of(Arena *arena, const tfm_decoding *decoding, int64_t n) {
  const tfm_program *step = decoding->step;
  int64_t *symbols = ARENA_ARRAY(arena, int64_t, step->n_symbols);
  for (uint32_t i = 0; i < step->n_symbols; i++)
    symbols[i] = i == decoding->past ? PAST : i == decoding->fresh || i == decoding->kept ? n : 1;
  return symbols;
}

static Subject *add_case(Bench *bench, const Row *row, const char *form, int32_t threads, int64_t n) {
  StepCase *item = ARENA_NEW(bench->arena, StepCase);
  *item = (StepCase){row, symbols_of(bench->arena, row->decoding, n), {0, tokens, n, 0}};
  const Work work = roofline_work_at(row->decoding->step, item->symbols);
  const double bytes = work.weight_bytes + work.cache_bytes;
  char name[64];
  snprintf(name, sizeof name, "%s, %d tokens", form, (int)n);
  Subject *subject = subject_add(bench, "steps", name, threads, (size_t)bytes);
  subject_runs(subject, run, least, item, work.flops, bytes);
  return subject;
}

// ---- the rows ----

static tfm_status begin_row(Row *row, tfm_error *error) {
  const tfm_decoder_row start = {0, tokens, PAST, 0};
  int64_t number;
  tfm_status status = tfm_decoder_begin(row->decoder, NULL, 1, PAST + MOST_TOKENS, error);
  if (!status) status = tfm_decoder_join(row->decoder, 0, &number, error);
  return status ? status : tfm_decoder_step(row->decoder, 1, &start, 1, row->logits, NULL, error);
}

/* A row for one thread, and one for all: they share the weights. NULL after a message. */
static Row *add_row(Bench *bench, const Compiled *compiled, int32_t threads) {
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  tfm_error error = {.message = "no memory"};
  Row *row = ARENA_NEW(bench->arena, Row);
  *row = (Row){.decoding = &compiled->decoding};
  row->logits = malloc(MOST_TOKENS * (size_t)compiled->decoding.vocab * sizeof(float));
  if (row->logits && !tfm_decoder_create(row->decoding, NULL, compiled->packed, &options, &row->decoder, &error) &&
      !begin_row(row, &error))
    return row;
  fprintf(stderr, "%s: %s\n", file, error.message);
  return NULL;
}

static bool add_form(Bench *bench, const char *form) {
  const BenchModel model = {.file = file, .target = bench->target, .is_random = true, .rules = &form, .n_rules = 1};
  Compiled *compiled = ARENA_NEW(bench->arena, Compiled);
  fprintf(stderr, "%s in %s is packed\n", file, form);
  if (!compile_file(bench->arena, &model, true, compiled)) return false;
  for (int32_t threads = 1; threads <= bench->threads; threads += bench->threads > 1 ? bench->threads - 1 : 1) {
    const Row *row = add_row(bench, compiled, threads);
    if (!row) return false;
    const Subject *one = NULL;
    for (int i = 0; i < N_COUNTS; i++) {
      Subject *subject = add_case(bench, row, form, threads, token_counts[i]);
      subject->one = one;
      if (!one) one = subject;
    }
  }
  return true;
}

bool step_subjects(Bench *bench) {
  bool done = true;
  for (int i = 0; i < N_FORMS && done; i++) done = add_form(bench, forms[i]);
  return done;
}

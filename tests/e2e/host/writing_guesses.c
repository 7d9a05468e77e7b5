/* Guesses in compiled models: generate writes the same rows and scores with any number of them, greedily and by draws,
 * and takes fewer steps where a row repeats itself; a model that runs whole guesses nothing; beams refuse them. Linked
 * with --wrap for tfm_decoder_step too, which a step with guesses goes through.
 *
 * usage: writing_guesses THREADS */
#include "teller.h"
#include "tfm/decode.h"
#include "writing.h"

enum { NEW_TOKENS = 30 /* behind 8: Teller has 40 places */ };

static tfm_error error;
static long n_steps, n_fewer; /* steps through tfm_decoder_step; calls that took fewer steps than tokens */

tfm_status __real_tfm_decoder_step(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, int64_t kept, float *logits,
                                   float *logsumexp, tfm_error *problem);
tfm_status __wrap_tfm_decoder_step(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, int64_t kept, float *logits,
                                   float *logsumexp, tfm_error *problem);
tfm_status __wrap_tfm_decoder_step(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, int64_t kept, float *logits,
                                   float *logsumexp, tfm_error *problem) {
  n_steps++;
  return __real_tfm_decoder_step(decoder, n, rows, kept, logits, logsumexp, problem);
}

static int same_rows(const tfm_generated *a, const tfm_generated *b) {
  if (a->n != b->n || a->width != b->width) return 0;
  return !memcmp(a->sequences, b->sequences, sizeof *a->sequences * (size_t)(a->n * a->width)) &&
         !memcmp(a->lengths, b->lengths, sizeof *a->lengths * (size_t)a->n);
}

static void set_way(int way, tfm_generate_options *options) {
  options->max_new_tokens = NEW_TOKENS;
  options->do_sample = way > 0;
  options->seed = (uint64_t)way;
  options->top_k = way > 1 ? 2 : 0;
  options->temperature = way > 1 ? 0.05f : 1;
}

/* `guessing`: whether the model has steps. */
#define GUESSES_CHANGE_NOTHING(model, context, args, lengths, guessing) \
  do { \
    tfm_generate_options options; \
    tfm_generated plain, guessed; \
    for (int way = 0; way < 5; way++) { \
      model##_generate_defaults(&options); \
      set_way(way, &options); \
      SUCCEEDS(model##_generate((context), (args), (lengths), &options, &plain, &error)); \
      for (options.guesses = -1; options.guesses <= 15; options.guesses += options.guesses < 0 ? 2 : 7) { \
        n_steps = 0; \
        SUCCEEDS(model##_generate((context), (args), (lengths), &options, &guessed, &error)); \
        CHECK(same_rows(&plain, &guessed)); \
        CHECK((n_steps > 0) == (guessing)); \
        n_fewer += (guessing) && options.guesses > 0 && n_steps < guessed.width - 1; \
        model##_generated_free(&guessed); \
      } \
      model##_generated_free(&plain); \
    } \
    options.do_sample = 0, options.num_beams = 2, options.guesses = 3; \
    REFUSED(model##_generate((context), (args), (lengths), &options, &plain, &error), TFM_E_INPUT); \
    CHECK(strstr(error.message, "guesses")); \
  } while (0)

#define OPEN(name) \
  name##_model *name##_of = NULL; \
  name##_context *name = NULL; \
  SUCCEEDS(name##_open(NULL, &name##_of, &error)); \
  SUCCEEDS(name##_context_new(name##_of, &with, &name, &error)); \
  name##_close(name##_of)

int main(int argc, char **argv) {
  const tfm_context_options with = {.struct_size = sizeof with, .threads = argc > 1 ? atoi(argv[1]) : 1};
  int32_t src[ITEMS * SOURCE], prompt[8];
  fill_tokens(src, ITEMS * SOURCE, 3);
  for (int i = 0; i < 8; i++) prompt[i] = 5 + i % 2;
  OPEN(translator);
  OPEN(speaker);
  OPEN(averager);
  OPEN(teller);
  const translator_args sources = {.struct_size = sizeof sources, .batch = ITEMS, .source = SOURCE, .src = src};
  const speaker_args spoken = {.struct_size = sizeof spoken, .batch = 1, .time = 8, .tgt = prompt};
  const averager_args averaged = {.struct_size = sizeof averaged, .batch = 1, .time = 8, .tgt = prompt};
  const teller_args told = {.struct_size = sizeof told, .batch = 1, .time = 8, .tgt = prompt};
  GUESSES_CHANGE_NOTHING(translator, translator, &sources, NULL, 1);
  GUESSES_CHANGE_NOTHING(speaker, speaker, &spoken, NULL, 1);
  GUESSES_CHANGE_NOTHING(averager, averager, &averaged, NULL, 0);
  GUESSES_CHANGE_NOTHING(teller, teller, &told, ((const int64_t[]){8}), 1);
  CHECK(n_fewer > 0);
  translator_context_free(translator);
  speaker_context_free(speaker);
  averager_context_free(averager);
  teller_context_free(teller);
  return n_wrong != 0;
}

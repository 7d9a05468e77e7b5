/* What the programs share that write with compiled models: counted allocations, checks, rows of tokens.
 *
 * Translator: f32 scores of tgt given src, incremental. Speaker: of tgt alone, incremental. Averager: of tgt alone, not
 * incremental. Vocabulary 50, no end token. Linked with --wrap for malloc, calloc, realloc, aligned_alloc. */
#ifndef TFM_TESTS_WRITING_H
#define TFM_TESTS_WRITING_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/counted_allocations.h"
#include "averager.h"
#include "speaker.h"
#include "translator.h"

enum { VOCAB = 50, SOURCE = 9, ITEMS = 3, LONGEST = 64 };

static int n_wrong;

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size) { return allocation_fails() ? NULL : __real_realloc(old, size); }

static inline void wrong(int line, const char *what) {
  fprintf(stderr, "line %d: %s\n", line, what);
  n_wrong++;
}
#define CHECK(truth) ((truth) ? (void)0 : wrong(__LINE__, #truth))
#define SUCCEEDS(call) ((call) == TFM_OK ? (void)0 : wrong(__LINE__, error.message))
#define REFUSED(call, wanted) ((call) == (wanted) && error.message[0] ? (void)0 : wrong(__LINE__, "not refused as it should be: " #call))

/* Tokens that look random: the same for the same seed. */
static inline void fill_tokens(int32_t *tokens, int n, uint32_t seed) {
  for (int i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    tokens[i] = (int32_t)(3 + (seed >> 16) % (VOCAB - 3));
  }
}

static inline void print_rows(const tfm_generated *written) {
  for (int64_t i = 0; i < written->n; i++)
    for (int64_t t = 0; t < written->lengths[i]; t++)
      printf("%s%d%s", t ? ", " : "[", (int)written->sequences[i * written->width + t],
             t + 1 < written->lengths[i] ? "" : "]\n");
}

/* The options that the test gives `tfmc generate` too; 0: there are no more. */
static inline int set_options(int number, int64_t new_tokens, tfm_generate_options *options) {
  options->max_new_tokens = new_tokens;
  if (number == 1) options->num_beams = 3, options->num_return_sequences = 2;
  if (number == 2) options->do_sample = 1, options->seed = 7, options->top_k = 10;
  return number < 3;
}

/* Generates with each set of options, a row a line on standard output. */
#define WRITES_ROWS(model, context, args, lengths, new_tokens) \
  do { \
    tfm_generate_options options; \
    tfm_generated rows; \
    for (int i = 0; model##_generate_defaults(&options), set_options(i, (new_tokens), &options); i++) { \
      SUCCEEDS(model##_generate((context), (args), (lengths), &options, &rows, &error)); \
      print_rows(&rows); \
      model##_generated_free(&rows); \
    } \
  } while (0)

#endif

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

#endif

/* Serves sentence embeddings. usage: embed WEIGHTS [KNOWN]
 *
 * In: lines of token ids on standard input. Out: for each line its embedding, DIMENSION numbers; or, with a file KNOWN
 * of such lines, the numbers of its NEAREST lines and how near they are (the cosine; 1 is the same). A line that is
 * refused gives an empty line and a message, and the next one is served. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mini_lm.h"

enum { DIMENSION = 384, MAX_TOKENS = 512, NEAREST = 3 };

typedef struct Known {
  float (*embeddings)[DIMENSION];
  size_t n, capacity;
} Known;

/* Reads the ids of a line; returns how many there are, or 0 after a message. */
static int read_ids(char *line, int32_t ids[MAX_TOKENS], tfm_error *error) {
  int n = 0;
  for (char *rest = line, *end;; rest = end) {
    while (isspace((unsigned char)*rest)) rest++;
    if (!*rest) break;
    errno = 0;
    long id = strtol(rest, &end, 10);
    if (end == rest || (*end && !isspace((unsigned char)*end)) || errno || id != (int32_t)id) {
      int word = (int)strcspn(rest, " \t\r\n");
      snprintf(error->message, sizeof error->message, "'%.*s' is no token id", word < 40 ? word : 40, rest);
      return 0;
    }
    if (n == MAX_TOKENS) {
      snprintf(error->message, sizeof error->message, "more than %d tokens", MAX_TOKENS);
      return 0;
    }
    ids[n++] = (int32_t)id;
  }
  if (!n) snprintf(error->message, sizeof error->message, "no tokens");
  return n;
}

/* Computes the embedding of a line of ids; returns 0 after an error. */
static int embed(mini_lm_context *context, char *line, float embedding[DIMENSION], tfm_error *error) {
  int32_t ids[MAX_TOKENS], real[MAX_TOKENS];
  int n = read_ids(line, ids, error);
  for (int i = 0; i < n; i++) real[i] = 1; /* one sentence alone has no padding */
  mini_lm_args args = {.struct_size = sizeof args, .batch = 1, .time = n, .input_ids = ids, .attention_mask = real,
                       .embedding = embedding, .embedding_capacity = DIMENSION};
  return n && mini_lm_forward(context, &args, error) == TFM_OK;
}

// ---- searching ----

/* Makes room for one more embedding; returns 0 after an error. */
static int grow(Known *known, tfm_error *error) {
  if (known->n < known->capacity) return 1;
  size_t capacity = known->capacity ? 2 * known->capacity : 64;
  void *grown = realloc(known->embeddings, capacity * sizeof *known->embeddings);
  if (!grown) return snprintf(error->message, sizeof error->message, "not enough memory"), 0;
  known->embeddings = grown;
  known->capacity = capacity;
  return 1;
}

/* Computes the embeddings of all lines of a file; returns 0 after an error. */
static int read_known(mini_lm_context *context, const char *path, Known *known, tfm_error *error) {
  FILE *file = fopen(path, "r");
  if (!file) return snprintf(error->message, sizeof error->message, "%s: %s", path, strerror(errno)), 0;
  char *line = NULL;
  size_t room = 0;
  int fine = 1;
  while (fine && getline(&line, &room, file) >= 0) {
    tfm_error reason;
    fine = grow(known, &reason) && embed(context, line, known->embeddings[known->n], &reason);
    if (fine) known->n++;
    else snprintf(error->message, sizeof error->message, "%.200s:%zu: %.200s", path, known->n + 1, reason.message);
  }
  fclose(file);
  free(line);
  return fine;
}

static float likeness(const float *a, const float *b) { /* both have length 1 */
  float sum = 0;
  for (int i = 0; i < DIMENSION; i++) sum += a[i] * b[i];
  return sum;
}

static void print_nearest(const Known *known, const float *embedding) {
  size_t best[NEAREST];
  float near[NEAREST];
  int n = 0;
  for (size_t i = 0; i < known->n; i++) {
    float here = likeness(known->embeddings[i], embedding);
    int place = n;
    while (place > 0 && near[place - 1] < here) place--;
    if (place == NEAREST) continue;
    if (n < NEAREST) n++;
    memmove(best + place + 1, best + place, (size_t)(n - 1 - place) * sizeof *best);
    memmove(near + place + 1, near + place, (size_t)(n - 1 - place) * sizeof *near);
    best[place] = i;
    near[place] = here;
  }
  for (int i = 0; i < n; i++) printf("%s%zu %.2f", i ? "  " : "", best[i] + 1, near[i]);
  putchar('\n');
}

// ---- serving ----

static void print_embedding(const float *embedding) { /* nine digits give each float back exactly */
  for (int i = 0; i < DIMENSION; i++) printf("%s%.9g", i ? " " : "", embedding[i]);
  putchar('\n');
}

static void serve(mini_lm_context *context, const Known *known) {
  char *line = NULL;
  size_t room = 0;
  float embedding[DIMENSION];
  tfm_error error;
  for (int number = 1; getline(&line, &room, stdin) >= 0; number++) {
    if (!embed(context, line, embedding, &error)) {
      fprintf(stderr, "line %d: %s\n", number, error.message);
      putchar('\n');
    } else if (known->n) print_nearest(known, embedding);
    else print_embedding(embedding);
    fflush(stdout); /* a program that asks through a pipe waits for the answer */
  }
  free(line);
}

int main(int argc, char **argv) {
  mini_lm_model *model = NULL;
  mini_lm_context *context = NULL;
  Known known = {0};
  tfm_error error;
  if (argc < 2 || argc > 3) return fprintf(stderr, "usage: embed WEIGHTS [KNOWN]\n"), 2;
  int fine = mini_lm_open(argv[1], &model, &error) == TFM_OK &&
             mini_lm_context_new(model, NULL, &context, &error) == TFM_OK &&
             mini_lm_reserve(context, &(mini_lm_args){.batch = 1, .time = MAX_TOKENS}, &error) == TFM_OK &&
             (argc < 3 || read_known(context, argv[2], &known, &error));
  if (fine) serve(context, &known);
  else fprintf(stderr, "embed: %s\n", error.message);
  free(known.embeddings);
  mini_lm_context_free(context);
  mini_lm_close(model);
  return !fine;
}

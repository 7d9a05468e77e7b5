/* Continues token ids with a compiled GPT-2. usage: continue WEIGHTS NEW_TOKENS
 *
 * In: lines of token ids on standard input. Out: the same lines with up to NEW_TOKENS more, chosen greedily. All lines
 * form one batch, each with its own length, so the weights are read once per token for all of them. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpt2.h"

typedef struct Prompts { /* what the model takes: rows of one width, of which only `lengths` are read */
  int32_t *tokens;
  int64_t *lengths, n, width;
} Prompts;

static int failed(const char *what) { return fprintf(stderr, "continue: %s\n", what), 0; }

/* Stores the ids of a line, at most `room` of them; returns how many there are, or -1 if the line is malformed. */
static int64_t read_ids(const char *line, int32_t *ids, int64_t room) {
  int64_t n = 0;
  for (char *end; *(line += strspn(line, " \t\r\n")); line = end) {
    errno = 0;
    long id = strtol(line, &end, 10);
    if (end == line || errno || id != (int32_t)id) return -1;
    if (n < room) ids[n] = (int32_t)id;
    n++;
  }
  return n;
}

/* Reads all lines; the longest decides how wide the rows are. Returns 0 after a message. */
static int read_prompts(Prompts *prompts) {
  char **lines = NULL, *line = NULL;
  size_t room = 0;
  int fine = 1;
  while (fine && getline(&line, &room, stdin) >= 0) {
    int64_t length = read_ids(line, NULL, 0);
    char **more = realloc(lines, (size_t)(prompts->n + 1) * sizeof *lines);
    if (more) lines = more;
    if (length < 1)
      fine = failed("each line must have token ids, and nothing else");
    else if (!more || !(lines[prompts->n] = strdup(line)))
      fine = failed("not enough memory");
    else
      prompts->n++;
    if (length > prompts->width) prompts->width = length;
  }
  if (fine && !prompts->n) fine = failed("there are no lines");
  prompts->tokens = calloc((size_t)(prompts->n * prompts->width) + 1, sizeof *prompts->tokens);
  prompts->lengths = calloc((size_t)prompts->n + 1, sizeof *prompts->lengths);
  if (fine && (!prompts->tokens || !prompts->lengths)) fine = failed("not enough memory");
  for (int64_t i = 0; i < prompts->n; i++) {
    if (fine) prompts->lengths[i] = read_ids(lines[i], prompts->tokens + i * prompts->width, prompts->width);
    free(lines[i]);
  }
  free(lines);
  free(line);
  return fine;
}

static int write_on(gpt2_context *context, const Prompts *prompts, int64_t new_tokens) {
  const gpt2_args args = {.struct_size = sizeof args, .batch = prompts->n, .time = prompts->width,
                          .input_ids = prompts->tokens};
  tfm_generate_options options;
  tfm_generated written;
  tfm_error error;
  gpt2_generate_defaults(&options);
  options.max_new_tokens = new_tokens;
  if (gpt2_generate(context, &args, prompts->lengths, &options, &written, &error)) return failed(error.message);
  for (int64_t i = 0; i < written.n; i++)
    for (int64_t t = 0; t < written.lengths[i]; t++)
      printf("%d%c", (int)written.sequences[i * written.width + t], t + 1 < written.lengths[i] ? ' ' : '\n');
  gpt2_generated_free(&written);
  return 1;
}

int main(int argc, char **argv) {
  gpt2_model *model = NULL;
  gpt2_context *context = NULL;
  Prompts prompts = {0};
  tfm_error error;
  if (argc != 3) return fprintf(stderr, "usage: continue WEIGHTS NEW_TOKENS\n"), 2;
  int fine = read_prompts(&prompts);
  if (fine && (gpt2_open(argv[1], &model, &error) || gpt2_context_new(model, NULL, &context, &error)))
    fine = failed(error.message);
  fine = fine && write_on(context, &prompts, atoll(argv[2]));
  free(prompts.tokens);
  free(prompts.lengths);
  gpt2_context_free(context);
  gpt2_close(model);
  return !fine;
}

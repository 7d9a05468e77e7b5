/* Lines with dates on standard input to ISO dates on standard output, by an open model. For dates.c and train.c.
 *
 * A line without a date gives some date all the same, since the model knows nothing else; a line that cannot be read
 * gives an empty line and a message. */
#ifndef TRANSLATE_H
#define TRANSLATE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dates.h"
#include "vocabulary.h"

/* Reads the ids of a line; returns how many there are, or 0 after a message. */
static int read_ids(const char *line, int number, int32_t ids[LONGEST]) {
  int n = 0;
  const char *fault = NULL;
  for (; !fault && *line && *line != '\n' && *line != '\r'; line++) {
    char small = *line >= 'A' && *line <= 'Z' ? (char)(*line - 'A' + 'a') : *line;
    const char *place = strchr(CHARACTERS, small);
    if (!place) fault = "a date is written with letters, digits, blanks and , . / - '";
    else if (n == LONGEST) fault = "it is too long";
    else ids[n++] = FIRST_ID + (int32_t)(place - CHARACTERS);
  }
  if (!fault && !n) fault = "it is empty";
  if (fault) fprintf(stderr, "line %d, character %d: %s\n", number, n + 1, fault);
  return fault ? 0 : n;
}

/* Prints the likeliest date: the first of the beams. */
static tfm_status translate(dates_context *context, const int32_t *src, int n, tfm_error *error) {
  tfm_generate_options options;
  dates_generate_defaults(&options);
  options.num_beams = 4;
  tfm_generated written;
  const dates_args args = {.struct_size = sizeof args, .batch = 1, .source = n, .src = src};
  if (dates_generate(context, &args, NULL, &options, &written, error)) return error->status;
  for (int64_t i = 0; i < written.lengths[0]; i++)
    if (written.sequences[i] >= FIRST_ID) putchar(CHARACTERS[written.sequences[i] - FIRST_ID]);
  putchar('\n');
  dates_generated_free(&written);
  return TFM_OK;
}

static tfm_status translate_lines(dates_model *model, tfm_error *error) {
  dates_context *context = NULL;
  setvbuf(stdout, NULL, _IOLBF, 0); /* each line is answered at once */
  tfm_status status = dates_context_new(model, &(tfm_context_options){.threads = 1}, &context, error);
  char *line = NULL;
  size_t room = 0;
  int32_t src[LONGEST];
  for (int number = 1; !status && getline(&line, &room, stdin) >= 0; number++) {
    int n = read_ids(line, number, src);
    if (n > 0) status = translate(context, src, n, error);
    else putchar('\n');
  }
  free(line);
  dates_context_free(context);
  return status;
}

#endif

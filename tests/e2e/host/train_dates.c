/* Trains examples/dates by its compiled library, one step for each record of a file.
 *
 * usage: train_dates BATCHES FOLDER THREADS
 * A record: items, length of the sources, length of the sentences, and both tensors, all in 32-bit integers. The weights after the
 * last one are saved to FOLDER as `tfmc train` saves them. Exit code 1 and a line on stderr after an error. */
#include <stdio.h>
#include <stdlib.h>

#include "dates.h"

static void fail(const char *what, const tfm_error *error) {
  fprintf(stderr, "%s: status %d: %s\n", what, error->status, error->message);
  exit(1);
}

/* `n` numbers behind each other; ends the program if the file ends within them. */
static int32_t *numbers(FILE *file, int64_t n) {
  int32_t *into = malloc((size_t)n * sizeof *into);
  if (!into || fread(into, sizeof *into, (size_t)n, file) != (size_t)n) exit(1);
  return into;
}

int main(int n, char **words) {
  if (n != 4) return 2;
  FILE *file = fopen(words[1], "rb");
  if (!file) return 1;
  const tfm_trainer_options options = {.struct_size = sizeof options, .seed = 1, .threads = atoi(words[3])};
  tfm_step_result result = {.struct_size = sizeof result};
  dates_trainer *trainer;
  tfm_error error;
  if (dates_trainer_new(NULL, &options, &trainer, &error)) fail("new", &error);
  for (int32_t sizes[3]; fread(sizes, sizeof sizes, 1, file) == 1;) {
    int32_t *src = numbers(file, (int64_t)sizes[0] * sizes[1]), *sentence = numbers(file, (int64_t)sizes[0] * sizes[2]);
    const dates_objective_args batch = {.struct_size = sizeof batch, .batch = sizes[0], .source = sizes[1], .n = sizes[2],
                                        .src = src, .sentence = sentence};
    if (dates_trainer_step(trainer, &batch, 1, 0, &result, &error)) fail("step", &error);
    free(src);
    free(sentence);
  }
  fclose(file);
  if (dates_trainer_save(trainer, words[2], NULL, 0, &error)) fail("save", &error);
  dates_trainer_free(trainer);
  return 0;
}

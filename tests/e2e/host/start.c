/* usage: start LIBRARY WEIGHTS: how long it takes from nothing to the first embedding of 16 tokens, by the library of
 * examples/minilm; once with the library and the weights as they are found, once more when they are in memory. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "minilm.h"

#define FUNCTION(library, name) \
  __typeof__(&name) p_##name;   \
  *(void **)&p_##name = dlsym(library, #name)

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

static void check(tfm_status status, const tfm_error *error) {
  if (!status) return;
  fprintf(stderr, "%s\n", error->message);
  exit(4);
}

static void start(const char *path, const char *weights, const char *when) {
  double begin = now();
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(3);
  }
  FUNCTION(library, mini_lm_open);
  FUNCTION(library, mini_lm_close);
  FUNCTION(library, mini_lm_context_new);
  FUNCTION(library, mini_lm_context_free);
  FUNCTION(library, mini_lm_forward);
  mini_lm_model *model;
  mini_lm_context *context;
  tfm_error error;
  check(p_mini_lm_open(weights, &model, &error), &error);
  double opened = now();
  check(p_mini_lm_context_new(model, NULL, &context, &error), &error);
  int32_t ids[16], mask[16];
  float embedding[384];
  for (int i = 0; i < 16; i++) {
    ids[i] = 1000 + 977 * i;
    mask[i] = 1;
  }
  mini_lm_args args = {.batch = 1, .time = 16, .input_ids = ids, .attention_mask = mask, .embedding = embedding};
  check(p_mini_lm_forward(context, &args, &error), &error);
  double first = now();
  check(p_mini_lm_forward(context, &args, &error), &error);
  double second = now();
  printf("%s: library and weights open after %.2f ms, first result after %.2f ms; the next run takes %.2f ms\n", when,
         opened - begin, first - begin, second - first);
  p_mini_lm_context_free(context);
  p_mini_lm_close(model);
  dlclose(library);
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  start(argv[1], argv[2], "as found");
  start(argv[1], argv[2], "in memory");
  return 0;
}

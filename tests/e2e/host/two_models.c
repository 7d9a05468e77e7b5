/* usage: two_models LIBM WEIGHTS LIBOTHER WEIGHTS COPY_OF_LIBM: two models, and one of them twice, loaded into the
 * global scope of one process. Prints what each computes; the copy must give what the original gives. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "m.h"
#include "other.h"

#define FUNCTION(library, name) \
  __typeof__(&name) p_##name;   \
  *(void **)&p_##name = dlsym(library, #name)

static void *load(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library) return library;
  fprintf(stderr, "%s\n", dlerror());
  exit(3);
}

static void check(tfm_status status, const tfm_error *error) {
  if (!status) return;
  fprintf(stderr, "%s\n", error->message);
  exit(4);
}

static void run_m(void *library, const char *weights, float y[4]) {
  FUNCTION(library, m_open);
  FUNCTION(library, m_context_new);
  FUNCTION(library, m_forward);
  m_model *model;
  m_context *context;
  tfm_error error;
  float x[6] = {1, 0, 2, 1, 1, 1};
  int32_t ids[2] = {3, 4};
  m_args args = {.batch = 2, .x = x, .ids = ids, .y = y};
  check(p_m_open(weights, &model, &error), &error);
  check(p_m_context_new(model, NULL, &context, &error), &error);
  check(p_m_forward(context, &args, &error), &error);
}

static void run_other(void *library, const char *weights, float y[3]) {
  FUNCTION(library, other_open);
  FUNCTION(library, other_context_new);
  FUNCTION(library, other_forward);
  other_model *model;
  other_context *context;
  tfm_error error;
  float x[3] = {1, 2, 3};
  other_args args = {.batch = 1, .x = x, .y = y};
  check(p_other_open(weights, &model, &error), &error);
  check(p_other_context_new(model, NULL, &context, &error), &error);
  check(p_other_forward(context, &args, &error), &error);
}

int main(int argc, char **argv) {
  if (argc != 6) return 2;
  float y[4], again[4], other[3];
  void *m = load(argv[1]), *o = load(argv[3]), *copy = load(argv[5]);
  run_m(m, argv[2], y);
  run_other(o, argv[4], other);
  run_m(copy, argv[2], again);
  printf("%g %g %g %g\n%g %g %g\n", (double)y[0], (double)y[1], (double)y[2], (double)y[3], (double)other[0],
         (double)other[1], (double)other[2]);
  return memcmp(y, again, sizeof y) != 0;
}

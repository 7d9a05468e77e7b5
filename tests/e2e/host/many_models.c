/* Four compiled models in one program, linked as objects with the runtime (H08, H14, H15).
 *
 * usage: many_models RUNS ALONE. Sixteen threads run every model RUNS times each, with contexts of one to three threads or
 * of a shared pool, made anew now and then; then one thread runs each model ALONE times within what was reserved, which
 * must allocate nothing. All results must be the bits that one thread gave before. Linked with --wrap for malloc, calloc,
 * aligned_alloc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../support/counted_allocations.h"
#include "four.h"
#include "one.h"
#include "three.h"
#include "two.h"

#include "callers.h"

enum { CALLERS = 16, MODELS = 4, MOST_ROWS = 24, WIDTH = 16, LIFETIME = 250 /* runs of a context */ };

/* --- The models behind one interface ------------------------------------------------------------------------------- */

typedef struct Kind {
  tfm_status (*open)(void **model, tfm_error *error);
  void (*close)(void *model);
  tfm_status (*context_new)(void *model, const tfm_context_options *options, void **context, tfm_error *error);
  void (*context_free)(void *context);
  tfm_status (*forward)(void *context, int64_t rows, const float *x, float *y);
  tfm_status (*reserve)(void *context, int64_t rows);
} Kind;

#define KIND(name)                                                                                                     \
  static tfm_status name##_begin(void **model, tfm_error *error) {                                                     \
    name##_model *opened = NULL;                                                                                       \
    tfm_status status = name##_open(NULL, &opened, error);                                                             \
    *model = opened;                                                                                                   \
    return status;                                                                                                     \
  }                                                                                                                    \
  static void name##_end(void *model) { name##_close(model); }                                                         \
  static tfm_status name##_make(void *model, const tfm_context_options *options, void **context, tfm_error *error) {   \
    name##_context *made = NULL;                                                                                       \
    tfm_status status = name##_context_new(model, options, &made, error);                                              \
    *context = made;                                                                                                   \
    return status;                                                                                                     \
  }                                                                                                                    \
  static void name##_drop(void *context) { name##_context_free(context); }                                             \
  static tfm_status name##_run(void *context, int64_t rows, const float *x, float *y) {                                \
    const name##_args args = {.struct_size = sizeof args, .rows = rows, .x = x, .y = y, .y_capacity = rows * WIDTH};   \
    return name##_forward(context, &args, NULL);                                                                       \
  }                                                                                                                    \
  static tfm_status name##_room(void *context, int64_t rows) {                                                         \
    return name##_reserve(context, &(name##_args){.rows = rows}, NULL);                                                \
  }                                                                                                                    \
  static const Kind name##_kind = {name##_begin, name##_end, name##_make, name##_drop, name##_run, name##_room};

KIND(one)
KIND(two)
KIND(three)
KIND(four)

static const Kind *const kinds[MODELS] = {&one_kind, &two_kind, &three_kind, &four_kind};
static void *models[MODELS];
static tfm_pool *pool;
static float x[MOST_ROWS * WIDTH], expected[MODELS][MOST_ROWS + 1][MOST_ROWS * WIDTH];

static void *context_of(int model, int32_t threads, tfm_pool *shared) {
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads, .spin_us = threads > 2 ? -1 : 20,
                                       .pool = shared};
  tfm_error error;
  void *context = NULL;
  if (!kinds[model]->context_new(models[model], &options, &context, &error)) return context;
  fprintf(stderr, "%s\n", error.message);
  exit(1);
}

static int gives_expected(int model, void *context, int64_t rows) {
  float y[MOST_ROWS * WIDTH];
  const size_t bytes = sizeof(float) * (size_t)rows * WIDTH;
  memset(y, 0, sizeof y);
  return kinds[model]->forward(context, rows, x, y) == TFM_OK && memcmp(y, expected[model][rows], bytes) == 0;
}

/* --- Sixteen threads ----------------------------------------------------------------------------------------------- */

static void *context_of_caller(const Caller *caller, int model) {
  return context_of(model, 1 + caller->number % 3, caller->number % 4 == 3 ? pool : NULL);
}

static void *call(void *argument) {
  Caller *caller = argument;
  void *contexts[MODELS];
  for (int i = 0; i < MODELS; i++) contexts[i] = context_of_caller(caller, i);
  for (int run = 0; run < caller->runs; run++) {
    for (int i = 0; i < MODELS; i++) {
      int64_t rows = (run * 7 + caller->number + i) % (MOST_ROWS + 1);
      caller->failed += !gives_expected(i, contexts[i], rows);
      if (run % LIFETIME != LIFETIME - 1) continue;
      kinds[i]->context_free(contexts[i]);
      contexts[i] = context_of_caller(caller, i);
    }
  }
  for (int i = 0; i < MODELS; i++) kinds[i]->context_free(contexts[i]);
  return NULL;
}

/* --- One thread ---------------------------------------------------------------------------------------------------- */

/* Memory of this process that is in no file. Not the counters of statm: each CPU may hold back some of those. */
static long anonymous_kib(void) {
  char line[256];
  long kib = -1;
  FILE *file = fopen("/proc/self/smaps_rollup", "r");
  while (file && fgets(line, sizeof line, file))
    if (strncmp(line, "Anonymous:", 10) == 0) kib = atol(line + 10);
  if (!file || kib < 0) exit(1);
  fclose(file);
  return kib;
}

static int run_alone(int times) {
  int failed = 0;
  for (int model = 0; model < MODELS; model++) {
    void *context = context_of(model, 1, NULL);
    if (kinds[model]->reserve(context, MOST_ROWS)) return 1;
    for (int64_t rows = 0; rows <= MOST_ROWS; rows++) failed += !gives_expected(model, context, rows);
    long kib = anonymous_kib(), allocations = atomic_load(&n_allocations);
    for (int run = 0; run < times; run++) failed += !gives_expected(model, context, run % (MOST_ROWS + 1));
    long more = atomic_load(&n_allocations) - allocations, grown = anonymous_kib() - kib;
    if (more || grown > 16) fprintf(stderr, "model %d: %ld allocations, %ld KiB in %d runs\n", model, more, grown, times);
    failed += more || grown > 16;
    kinds[model]->context_free(context);
  }
  return failed;
}

static int prepare(void) {
  tfm_error error;
  for (int i = 0; i < MOST_ROWS * WIDTH; i++) x[i] = (float)(i * 37 % 101) / 50 - 1;
  for (int model = 0; model < MODELS; model++) {
    if (kinds[model]->open(&models[model], &error)) return fprintf(stderr, "%s\n", error.message);
    void *context = context_of(model, 1, NULL);
    for (int64_t rows = 0; rows <= MOST_ROWS; rows++)
      if (kinds[model]->forward(context, rows, x, expected[model][rows])) return 1;
    kinds[model]->context_free(context);
  }
  return one_pool_new(2, &pool, &error) != TFM_OK;
}

int main(int argc, char **argv) {
  if (argc != 3 || prepare()) return 2;
  static Caller callers[CALLERS];
  int failed = run_callers(callers, CALLERS, atoi(argv[1]), call), alone = run_alone(atoi(argv[2]));
  if (failed || alone) fprintf(stderr, "wrong: %d runs of many threads, %d of one\n", failed, alone);
  one_pool_free(pool);
  for (int model = 0; model < MODELS; model++) kinds[model]->close(models[model]);
  return failed || alone;
}

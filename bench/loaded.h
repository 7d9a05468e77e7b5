/* Loaded models: compiled for one instruction set, with random weights; and cases: sizes and threads to run them with.
 * What is made here stays until it is freed; messages are printed at once. */
#ifndef TFM_BENCH_LOADED_H
#define TFM_BENCH_LOADED_H

#include "compile/compile_model.h"
#include "tfm/tfm.h"

enum { MOST_DEFINITIONS = 4, MOST_INPUTS = 2 };

typedef struct ModelRow { /* what to compile */
  const char *file, *name;
  const char *definitions[MOST_DEFINITIONS][2];
} ModelRow;

typedef struct LoadedModel {
  Arena *arena;
  Compiled compiled;
  const tfm_program *program;
  char *weights;
} LoadedModel;

typedef struct LoadedCase {
  const LoadedModel *model;
  tfm_context *context;
  int64_t sizes[MOST_INPUTS][TFM_MAX_RANK];
  const int64_t *dims[MOST_INPUTS]; /* of the inputs, for the roofline */
  tfm_value inputs[MOST_INPUTS];
  tfm_value output; /* models here have one */
} LoadedCase;

/* The model, or false after a message. The arena is the model's from then on. */
bool loaded_model(LoadedModel *model, const ModelRow *row, const TargetInfo *target);
void loaded_model_free(LoadedModel *model);
/* Numbers in [-most, most); the same for the same name. */
void fill_random(float *numbers, uint64_t n, float most, const char *name);

/* Numbers in [-1, 1) where the inputs are f32, ones where they are i32. Both sizes are those of the inputs' axes in
 * their order; the others are constant. False after a message. */
bool loaded_case(LoadedCase *item, const LoadedModel *model, int64_t batch, int64_t time, int32_t threads);
void loaded_case_run(LoadedCase *item);
void loaded_case_free(LoadedCase *item);

#endif

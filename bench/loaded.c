/* In: rows of models. Out: contexts that are ready to run. Weights are small random numbers in the packed block, where
 * packing would have put real ones: how fast a run is does not depend on their values, as long as nothing becomes
 * infinite or subnormal. */
#include "loaded.h"

#include <stdio.h>
#include <stdlib.h>

#include "compiling.h"
#include "engines/weight_source.h"

void fill_random(float *numbers, uint64_t n, float most, const char *name) {
  Random random = random_new(1, name);
  for (uint64_t i = 0; i < n; i++) numbers[i] = most * random_float(&random);
}

bool loaded_model(LoadedModel *model, const ModelRow *row, const TargetInfo *target) {
  Definition definitions[MOST_DEFINITIONS];
  uint32_t n = 0;
  for (; n < MOST_DEFINITIONS && row->definitions[n][0]; n++)
    definitions[n] = (Definition){row->definitions[n][0], row->definitions[n][1]};
  const BenchModel what = {.file = row->file,
                           .options = {.model = row->name, .definitions = definitions, .n_definitions = n},
                           .target = target};
  *model = (LoadedModel){.arena = arena_create()};
  if (!compile_file(model->arena, &what, false, &model->compiled)) {
    arena_destroy(model->arena);
    return false;
  }
  model->program = model->compiled.forward;
  model->weights = model->compiled.packed;
  fill_random((float *)(void *)model->weights, model->program->weights_bytes / sizeof(float), 0.03f, row->name);
  return true;
}

void loaded_model_free(LoadedModel *model) {
  compiled_free(&model->compiled);
  arena_destroy(model->arena);
  *model = (LoadedModel){0};
}

// ---- cases ----

/* The value of a dim: `sizes` are those of the first two run-time sizes, whatever their names are. */
static int64_t dim_of(const tfm_program *program, tfm_size size, const int64_t *sizes) {
  int64_t sum = 0;
  const tfm_polynomial *polynomial = &program->polynomials[size];
  for (uint32_t i = 0; i < polynomial->n_terms; i++) {
    const tfm_term *term = &program->terms[polynomial->first_term + i];
    int64_t product = term->coefficient;
    for (uint8_t j = 0; j < term->degree; j++) product *= sizes[term->symbols[j]];
    sum += product;
  }
  return sum;
}

static size_t bytes_of(const int64_t *dims, int32_t rank) {
  size_t bytes = 4; /* of an element: no model here has bool inputs or outputs */
  for (int32_t i = 0; i < rank; i++) bytes *= (size_t)dims[i];
  return bytes;
}

/* Ids are all 1: looking up the same row keeps embeddings out of what is measured. */
static bool make_input(LoadedCase *item, uint32_t i, const int64_t *sizes) {
  const tfm_program *program = item->model->program;
  const tfm_tensor_info *info = &program->inputs[i];
  for (uint8_t axis = 0; axis < info->rank; axis++) item->sizes[i][axis] = dim_of(program, info->dims[axis], sizes);
  item->dims[i] = item->sizes[i];
  size_t bytes = bytes_of(item->sizes[i], info->rank);
  void *data = malloc(bytes);
  item->inputs[i] = (tfm_value){data, info->dtype, info->rank, item->sizes[i]};
  if (!data) return false;
  if (info->dtype == TFM_F32) fill_random(data, bytes / sizeof(float), 1, info->name);
  for (size_t k = 0; info->dtype == TFM_I32 && k < bytes / sizeof(int32_t); k++) ((int32_t *)data)[k] = 1;
  return true;
}

static bool make_output(LoadedCase *item) {
  int32_t rank;
  const int64_t *dims = tfm_context_output_dims(item->context, 0, &rank);
  item->output.data = malloc(bytes_of(dims, rank));
  return item->output.data != NULL;
}

/* A case runs once here: the memory is touched, the threads are up, and loaded_case_run cannot fail. */
bool loaded_case(LoadedCase *item, const LoadedModel *model, int64_t batch, int64_t time, int32_t threads) {
  const tfm_program *program = model->program;
  tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  tfm_error error = {.message = "no memory, or a model that is too large for this program"};
  *item = (LoadedCase){.model = model};
  bool made = program->n_inputs <= MOST_INPUTS && program->n_symbols <= 2 && program->n_outputs == 1;
  for (uint32_t i = 0; i < program->n_inputs && made; i++) made = make_input(item, i, (const int64_t[]){batch, time});
  made = made && tfm_context_create(program, model->weights, &options, &item->context, &error) == TFM_OK &&
         tfm_context_bind(item->context, item->inputs, &error) == TFM_OK && make_output(item) &&
         tfm_context_run(item->context, item->inputs, &item->output, &error) == TFM_OK;
  if (made) return true;
  fprintf(stderr, "%s: %s\n", program->name, error.message);
  loaded_case_free(item);
  return false;
}

/* It worked with the same sizes before, so the status is not looked at. */
void loaded_case_run(LoadedCase *item) { tfm_context_run(item->context, item->inputs, &item->output, NULL); }

void loaded_case_free(LoadedCase *item) {
  tfm_context_destroy(item->context);
  for (int i = 0; i < MOST_INPUTS; i++) free(item->inputs[i].data);
  free(item->output.data);
  *item = (LoadedCase){0};
}

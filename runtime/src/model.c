/* Opening a compiled model: version, CPU, weights, in this order, before any generated code runs. */
#include "model.h"

#include <stdlib.h>

#include "cpu_features.h"

static tfm_status check_library(const tfm_library *library, tfm_model **model, tfm_error *error) {
  if (!model) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "there is no place for the model");
  *model = NULL;
  if (!library) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the library is a null pointer");
  if (library->abi != TFM_LIBRARY_ABI)
    return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "the library has the interface %u, this runtime needs %d",
                    library->abi, TFM_LIBRARY_ABI);
  if (!library->n_programs)
    return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "the library \"%s\" holds no program", library->model);
  for (uint32_t i = 0; i < library->n_programs; i++)
    if (library->programs[i]->version != TFM_PROGRAM_VERSION)
      return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL,
                      "the program of \"%s\" has version %u, this runtime needs %d", library->model,
                      library->programs[i]->version, TFM_PROGRAM_VERSION);
  return TFM_OK;
}

tfm_status model_choose(const tfm_library *library, uint32_t features, const tfm_program **program, tfm_error *error) {
  const char *missing = NULL, *isa = NULL;
  bool known = false;
  for (uint32_t i = 0; i < library->n_programs; i++) {
    isa = library->programs[i]->isa;
    missing = cpu_missing(isa, features, &known);
    if (!known || missing) continue;
    *program = library->programs[i];
    return TFM_OK;
  }
  if (!known)
    return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "\"%s\" is compiled for %s, which this machine is not",
                    library->model, isa);
  return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "\"%s\" is compiled for %s: this CPU lacks %s",
                  library->model, isa, missing);
}

/* Of the instruction set of `program`. */
static const tfm_decoding *decoding_of(const tfm_library *library, const tfm_program *program) {
  uint32_t i = 0;
  while (library->programs[i] != program) i++;
  return library->decodings ? library->decodings[i] : NULL;
}

/* A model without weights. */
static tfm_status new_model(const tfm_library *library, tfm_model **model, tfm_error *error) {
  const tfm_program *program = NULL;
  tfm_status status = check_library(library, model, error);
  if (!status) status = model_choose(library, cpu_features(), &program, error);
  if (status) return status;
  tfm_model *made = malloc(sizeof *made);
  if (!made) return tfm_fail(error, TFM_E_NOMEM, TFM_REASON_OTHER, NULL, "no memory for a model");
  *made = (tfm_model){.library = library, .program = program, .decoding = decoding_of(library, program), .users = 1};
  *model = made;
  return TFM_OK;
}

/* Closes the model again if getting its weights failed. */
static tfm_status finish(tfm_model **model, tfm_status status, tfm_error *error) {
  if (!status) return tfm_succeed(error);
  tfm_model_close(*model);
  *model = NULL;
  return status;
}

static tfm_status weights_of_library(const tfm_library *library, Weights *weights, tfm_error *error) {
  weights->packed = library->weights;
  if (library->weights || !library->programs[0]->weights_bytes) return TFM_OK;
  return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL,
                  "\"%s\" holds no weights: the path of a .tfmw file is needed", library->model);
}

tfm_status tfm_library_open(const tfm_library *library, const char *path, tfm_model **model, tfm_error *error) {
  tfm_status status = new_model(library, model, error);
  if (status) return status;
  status = path ? weights_map(library, path, &(*model)->weights, error)
                : weights_of_library(library, &(*model)->weights, error);
  return finish(model, status, error);
}

tfm_status tfm_library_open_memory(const tfm_library *library, const void *bytes, uint64_t size, tfm_model **model,
                                   tfm_error *error) {
  tfm_status status = new_model(library, model, error);
  if (status) return status;
  return finish(model, weights_in_memory(library, bytes, size, &(*model)->weights, error), error);
}

void model_keep(tfm_model *model) { atomic_fetch_add_explicit(&model->users, 1, memory_order_relaxed); }

void model_release(tfm_model *model) {
  if (atomic_fetch_sub_explicit(&model->users, 1, memory_order_acq_rel) > 1) return;
  weights_unmap(&model->weights);
  if (model->handle) model->unload(model->handle);
  free(model);
}

void tfm_model_close(tfm_model *model) {
  if (model) model_release(model);
}

const tfm_program *tfm_model_program(const tfm_model *model) { return model ? model->program : NULL; }
const tfm_library *tfm_model_library(const tfm_model *model) { return model ? model->library : NULL; }
const char *tfm_library_version(const tfm_library *library) { return library->version; }
const tfm_library *tfm_library_self(const tfm_library *library) { return library; }

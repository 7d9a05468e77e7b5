/* Trainers without the header of a library: the functions of tfm.h that open one and that take values.
 *
 * In: the path of a library that trains; parts of a batch as values of the objective's inputs. Out: a trainer as the
 * library's own functions make it. Refused: a library that does not train or that is of another version; values that
 * are not those of the objective. All else is done by the functions behind the library's own (trainer.c). */
#include <dlfcn.h>
#include <string.h>

#include "library_calls.h"
#include "model.h"
#include "training.h"

/* A model without weights keeps the library loaded; making it compares versions, so it comes before anything else of
 * the table is read than where the library is. */
static tfm_status open_table(const tfm_training *training, void *handle, const char *state,
                             const tfm_trainer_options *options, tfm_trainer **trainer, tfm_error *error) {
  tfm_model *owner = NULL;
  tfm_status status = model_new(training->library, &owner, error);
  if (!status) status = tfm_library_trainer_new(training, state, options, trainer, error);
  if (status) {
    tfm_model_close(owner);
    return status;
  }
  owner->handle = handle;
  owner->unload = dlclose;
  (*trainer)->owner = owner;
  return TFM_OK;
}

tfm_status tfm_trainer_open(const char *library_path, const char *state, const tfm_trainer_options *options,
                            tfm_trainer **trainer, tfm_error *error) {
  void *handle;
  const void *table;
  if (!trainer) return library_usage(error, "there is no place for the trainer");
  *trainer = NULL;
  tfm_status status = library_load(library_path, "_program", &handle, &table, error);
  if (status) return status;
  dlclose(handle); /* it is a model: what follows says whether it trains */
  if (library_load(library_path, "_training", &handle, &table, NULL))
    return tfm_refuse(error, TFM_E_ENV, "%s: this model does not train: it was compiled without --training",
                      library_path);
  status = open_table(table, handle, state, options, trainer, error);
  if (status) dlclose(handle);
  return status;
}

// ---- what the objective is ----

const tfm_tensor_info *tfm_trainer_inputs(const tfm_trainer *t, uint32_t *n) {
  const tfm_context *context = t ? t->engine.step_tops : NULL;
  if (n) *n = context ? t->training->n_inputs : 0;
  return context ? context->program->inputs : NULL;
}

const char *tfm_trainer_result(const tfm_trainer *t, int64_t result) {
  const bool is_there = t && result >= 0 && result < (int64_t)t->training->step.n_results;
  return is_there ? t->training->step.results[result].name : NULL;
}

void tfm_trainer_settings(const tfm_trainer *t, tfm_train_settings *settings) {
  if (t && settings) *settings = t->settings;
}

// ---- calls ----

static tfm_train_parts parts_of(const tfm_value *values, int64_t n) {
  return (tfm_train_parts){.n = n, .values = values};
}

tfm_status tfm_trainer_step(tfm_trainer *t, const tfm_value *parts, int64_t n, int64_t first_item,
                            tfm_step_result *result, tfm_error *error) {
  return training_step(t, parts_of(parts, n), first_item, result, error);
}

tfm_status tfm_trainer_gradients(tfm_trainer *t, const tfm_value *parts, int64_t n, int64_t first_item,
                                 tfm_step_result *result, tfm_error *error) {
  return training_gradients(t, parts_of(parts, n), first_item, result, error);
}

tfm_status tfm_trainer_evaluate(tfm_trainer *t, const tfm_value *parts, int64_t n, tfm_step_result *result,
                                tfm_error *error) {
  return training_evaluate(t, parts_of(parts, n), result, error);
}

tfm_status tfm_trainer_reserve(tfm_trainer *t, const tfm_value *largest, tfm_error *error) {
  return training_reserve(t, parts_of(largest, 1), error);
}

/* A library has no more run-time sizes than a program may have: the bits of a word stand for them. */
int64_t tfm_trainer_bytes(const tfm_trainer *t, const tfm_value *largest) {
  int64_t sizes[64] = {0};
  if (!t || !largest || t->training->n_sizes > 64) return -1;
  training_find_sizes(&t->training->step.tops, t->engine.step_tops->program, largest, sizes);
  const int64_t part = tfm_trainer_part_bytes(t, sizes);
  return part < 0 ? -1 : tfm_trainer_state_bytes(t) + part;
}

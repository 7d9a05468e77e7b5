/* What is in a trainer: its weights and moments, how far it has come, what its objective is; and who may use it.
 *
 * In: a trainer. Out: addresses within it, and numbers. Refused: a second caller at a time, a weight that the objective
 * does not have, a number that the optimizer does not keep. */
#include <string.h>

#include "base/error.h"
#include "machine/fp_mode.h"
#include "train/trainer_parts.h"

// ---- using one ----

tfm_status training_enter(tfm_trainer *t, tfm_error *error) {
  if (!t) return tfm_refuse_call(error, "the trainer is a null pointer");
  if (atomic_exchange_explicit(&t->running, true, memory_order_acquire))
    return tfm_refuse_call(error, "another thread is using this trainer");
  t->callers_mode = fp_mode_enter();
  return TFM_OK;
}

tfm_status training_leave(tfm_trainer *t, tfm_status status) {
  fp_mode_leave(t->callers_mode);
  atomic_store_explicit(&t->running, false, memory_order_release);
  return status;
}

float *tfm_trainer_data(tfm_trainer *t, uint32_t parameter, tfm_train_tensor which) {
  const tfm_parameter *p = &t->training->parameters[parameter];
  if (!t->blocks[which] || (which != TFM_TENSOR_WEIGHT && p->gradient == TFM_NONE)) return NULL;
  return t->blocks[which] + (which == TFM_TENSOR_WEIGHT ? p->offset : p->trained);
}

uint64_t tfm_trainer_trained(const tfm_trainer *t) {
  uint64_t h = 14695981039346656037u; /* FNV-1a, of words */
  for (uint32_t i = 0; i < t->training->n_parameters; i++)
    if (t->training->parameters[i].gradient != TFM_NONE) h = (h ^ i) * 1099511628211u;
  return h;
}

int64_t tfm_trainer_steps(const tfm_trainer *t) { return t->t; }
void tfm_trainer_set_steps(tfm_trainer *t, int64_t steps) { t->t = steps; }
void tfm_trainer_set_origin(tfm_trainer *t, const tfm_trainer_origin *origin) { t->head.origin = *origin; }
void tfm_trainer_set_epoch(tfm_trainer *t, int64_t epoch) { t->epoch = epoch; }

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

// ---- tensors ----

const char *tfm_trainer_path(const tfm_trainer *t, int64_t parameter) {
  const bool is_there = t && parameter >= 0 && parameter < (int64_t)t->training->n_parameters;
  return is_there ? t->training->parameters[parameter].path : NULL;
}

tfm_status tfm_trainer_tensor(tfm_trainer *t, const char *path, int32_t which, float **data, int64_t *dims,
                              int32_t *rank, tfm_error *error) {
  if (!t || !path || !data) return tfm_refuse_call(error, "a trainer, a path and a place for the tensor are needed");
  *data = NULL;
  if (which < TFM_TENSOR_WEIGHT || which > TFM_TENSOR_SECOND) return tfm_refuse_call(error, "there is no such tensor");
  for (uint32_t i = 0; i < t->training->n_parameters; i++) {
    const tfm_parameter *p = &t->training->parameters[i];
    if (strcmp(p->path, path) != 0) continue;
    *data = tfm_trainer_data(t, i, (tfm_train_tensor)which);
    if (dims) memcpy(dims, p->dims, sizeof p->dims);
    if (rank) *rank = p->rank;
    if (*data) return tfm_succeed(error);
    return tfm_refuse(error, TFM_E_INPUT, "weight '%s' is not trained, or the optimizer keeps no such number", path);
  }
  return tfm_refuse(error, TFM_E_INPUT, "the objective has no weight '%s'", path);
}

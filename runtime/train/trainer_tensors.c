/* What is in a trainer: its weights and moments, how far it has come, what its objective is; and who may use it.
 *
 * In: a trainer. Out: addresses within it, and numbers. Refused: a second caller at a time, a weight that the objective
 * does not have, a number that the optimizer does not keep. */
#include <string.h>

#include "base/error.h"
#include "base/fnv.h"
#include "machine/fp_mode.h"
#include "tfm/abi/adapts.h"
#include "train/kept.h"
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
  if (which == TFM_TENSOR_WEIGHT) return p->form == TFM_FORM_F32 ? t->places[parameter] : NULL;
  return t->blocks[which] && p->gradient != TFM_NONE ? t->blocks[which] + p->offset : NULL;
}

void *tfm_trainer_place(const tfm_trainer *t, uint32_t parameter) { return t->places[parameter]; }
void tfm_trainer_lend(tfm_trainer *t, uint32_t parameter, void *place) { t->places[parameter] = place; }
void tfm_trainer_has_base(tfm_trainer *t) { t->has_base = true; }
int32_t tfm_trainer_base_is_apart(const tfm_trainer *t) { return t && t->training->base_is_apart; }
int tfm_trainer_has_mean(const tfm_trainer *t) { return t->blocks[TFM_TENSOR_MEAN] != NULL; }

tfm_trainer_weights tfm_trainer_all_weights(const tfm_trainer *t) {
  return (tfm_trainer_weights){t->blocks[TFM_TENSOR_WEIGHT], t->frozen, t->training->floats * sizeof(float),
                               t->training->frozen_bytes};
}

void tfm_trainer_get(const tfm_trainer *t, uint32_t parameter, int64_t first, int64_t n, float *to) {
  kept_read(t->training->parameters[parameter].form, t->places[parameter], first, n, to);
}

void tfm_trainer_set(tfm_trainer *t, uint32_t parameter, int64_t first, int64_t n, const float *from) {
  const uint8_t form = t->training->parameters[parameter].form;
  uint16_t *halves = (uint16_t *)t->places[parameter] + first;
  if (form == TFM_FORM_F32 && n) memcpy((float *)t->places[parameter] + first, from, (size_t)n * sizeof *from);
  for (int64_t i = 0; i < n && form == TFM_FORM_BF16; i++) halves[i] = f32_to_bf16(from[i]);
  for (int64_t i = 0; i < n && form == TFM_FORM_F16; i++) halves[i] = f32_to_f16(from[i]);
}

uint64_t tfm_trainer_trained(const tfm_trainer *t) {
  uint64_t h = FNV_BEGIN;
  for (uint32_t i = 0; i < t->training->n_parameters; i++)
    if (t->training->parameters[i].gradient != TFM_NONE) h = fnv_add(h, i);
  return h;
}

int64_t tfm_trainer_steps(const tfm_trainer *t) { return t->t; }
void tfm_trainer_set_steps(tfm_trainer *t, int64_t steps) { t->t = steps; }
void tfm_trainer_set_origin(tfm_trainer *t, const tfm_trainer_origin *origin) { t->head.origin = *origin; }
void tfm_trainer_set_epoch(tfm_trainer *t, int64_t epoch) { t->epoch = epoch; }

// ---- initial values ----

tfm_status tfm_trainer_draw_one(tfm_trainer *t, uint32_t parameter, tfm_error *error) {
  const tfm_parameter *p = &t->training->parameters[parameter];
  if (p->initial.kind == TFM_INITIAL_NONE)
    return tfm_refuse(error, TFM_E_INPUT, "weight '%s' has no initial value", p->path);
  if (p->form == TFM_FORM_F32) {
    draw_initial(p, t->seed, t->places[parameter]);
    return tfm_succeed(error);
  }
  const size_t bytes = (size_t)p->elements * sizeof(float) + 1;
  float *values = allocate(&t->allocator, bytes, ALIGNMENT);
  if (!values) return tfm_refuse(error, TFM_E_NOMEM, "no memory for the initial values of '%s'", p->path);
  draw_initial(p, t->seed, values);
  tfm_trainer_set(t, parameter, 0, p->elements, values);
  release(&t->allocator, values, bytes);
  return tfm_succeed(error);
}

tfm_status tfm_trainer_draw(tfm_trainer *t, tfm_error *error) {
  tfm_status status = tfm_succeed(error);
  for (uint32_t i = 0; i < t->training->n_parameters && !status; i++)
    if (t->training->parameters[i].initial.kind != TFM_INITIAL_NONE || !t->fills)
      status = tfm_trainer_draw_one(t, i, error);
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

// ---- tensors ----

const char *tfm_trainer_path(const tfm_trainer *t, int64_t parameter) {
  const bool is_there = t && parameter >= 0 && parameter < (int64_t)t->training->n_parameters;
  return is_there ? t->training->parameters[parameter].path : NULL;
}

/* TFM_NONE: there is no such weight, and the error says so. */
static uint32_t find_weight(const tfm_trainer *t, const char *path, tfm_error *error) {
  for (uint32_t i = 0; i < t->training->n_parameters; i++)
    if (strcmp(t->training->parameters[i].path, path) == 0) return i;
  tfm_refuse(error, TFM_E_INPUT, "the objective has no weight '%s'", path);
  return TFM_NONE;
}

const char *tfm_trainer_form(const tfm_trainer *t, const char *path) {
  const uint32_t i = t && path ? find_weight(t, path, NULL) : TFM_NONE;
  return i == TFM_NONE ? NULL : tfm_form_name(t->training->parameters[i].form);
}

tfm_status tfm_trainer_read(tfm_trainer *t, const char *path, float *to, tfm_error *error) {
  if (!t || !path || !to) return tfm_refuse_call(error, "a trainer, a path and a place for the numbers are needed");
  const uint32_t i = find_weight(t, path, error);
  if (i == TFM_NONE) return TFM_E_INPUT;
  tfm_trainer_get(t, i, 0, t->training->parameters[i].elements, to);
  return tfm_succeed(error);
}

tfm_status tfm_trainer_write(tfm_trainer *t, const char *path, const float *from, tfm_error *error) {
  if (!t || !path || !from) return tfm_refuse_call(error, "a trainer, a path and numbers are needed");
  const uint32_t i = find_weight(t, path, error);
  if (i == TFM_NONE) return TFM_E_INPUT;
  tfm_trainer_set(t, i, 0, t->training->parameters[i].elements, from);
  return tfm_succeed(error);
}

static tfm_status refuse_tensor(const tfm_trainer *t, uint32_t i, int32_t which, tfm_error *error) {
  const tfm_parameter *p = &t->training->parameters[i];
  if (which == TFM_TENSOR_WEIGHT)
    return tfm_refuse(error, TFM_E_USAGE, "weight '%s' is kept in %s: tfm_trainer_read gives its numbers", p->path,
                      tfm_form_name(p->form));
  return tfm_refuse(error, TFM_E_INPUT, "weight '%s' is not trained, or the optimizer keeps no such number", p->path);
}

tfm_status tfm_trainer_tensor(tfm_trainer *t, const char *path, int32_t which, float **data, int64_t *dims,
                              int32_t *rank, tfm_error *error) {
  if (!t || !path || !data) return tfm_refuse_call(error, "a trainer, a path and a place for the tensor are needed");
  *data = NULL;
  if (which < TFM_TENSOR_WEIGHT || which > TFM_TENSOR_MEAN) return tfm_refuse_call(error, "there is no such tensor");
  const uint32_t i = find_weight(t, path, error);
  if (i == TFM_NONE) return TFM_E_INPUT;
  const tfm_parameter *p = &t->training->parameters[i];
  *data = tfm_trainer_data(t, i, (tfm_train_tensor)which);
  if (dims) memcpy(dims, p->dims, sizeof p->dims);
  if (rank) *rank = p->rank;
  return *data ? tfm_succeed(error) : refuse_tensor(t, i, which, error);
}

/* One run of a graph of a trainer: on a part of a step, or on what all parts gave together.
 *
 * In: a Run, which says what its inputs come from; where results go. Out: results. Refused: inputs whose shapes do not
 * fit, ids out of range, a trainer that was cancelled. Memory is taken only when masks of dropout are larger than any
 * before. */
#include <string.h>

#include "base/error.h"
#include "base/numbers.h"
#include "context/binding.h"
#include "train/trainer_parts.h"
#include "walk/walk.h"

static tfm_status check_cancelled(const tfm_trainer *t, tfm_error *error) {
  return atomic_load(&t->cancelled) ? tfm_refuse(error, TFM_E_CANCELLED, "the step was cancelled") : TFM_OK;
}

// ---- sizes ----

void training_read_sizes(const tfm_training *training, const void *args, int64_t *sizes) {
  for (uint32_t i = 0; i < training->n_sizes; i++)
    memcpy(&sizes[i], (const char *)args + training->sizes[i], sizeof sizes[i]);
}

static const tfm_value *value_of_part(const Run *run, uint32_t input) {
  return &run->parts->values[run->part * run->t->training->n_inputs + input];
}

static const char *args_of(const Run *run) {
  return (const char *)run->parts->args + (size_t)run->part * run->parts->stride;
}

/* Sizes from axes that are one size and nothing more. Whether all axes agree is looked at when their shapes are
 * compared with those that follow from the sizes. */
void training_find_sizes(const tfm_train_graph *graph, const tfm_program *program, const tfm_value *values,
                         int64_t *sizes) {
  for (uint32_t i = 0; i < program->n_inputs; i++) {
    const tfm_train_input *input = &graph->inputs[i];
    const tfm_value *value = input->source == TFM_FROM_BATCH ? &values[input->number] : NULL;
    const bool fits = value && value->dims && value->rank == program->inputs[i].rank;
    for (int32_t axis = 0; fits && axis < value->rank; axis++) {
      const tfm_polynomial *size = &program->polynomials[program->inputs[i].dims[axis]];
      const tfm_term *term = &program->terms[size->first_term];
      if (size->n_terms == 1 && term->coefficient == 1 && term->degree == 1 && term->symbols[0] < TFM_FIRST_FLOOR)
        sizes[term->symbols[0]] = value->dims[axis];
    }
  }
}

static bool is_from_cut(const tfm_train_input *input) {
  return input->source == TFM_FROM_CUT || input->source == TFM_FROM_COTANGENT;
}

static tfm_status bind_context(Run *run, tfm_error *error) {
  tfm_trainer *t = run->t;
  const tfm_program *program = run->context->program;
  if (run->sizes)
    memcpy(t->sizes, run->sizes, t->training->n_sizes * sizeof *t->sizes);
  else if (run->parts->values)
    training_find_sizes(run->graph, program, value_of_part(run, 0), t->sizes);
  else
    training_read_sizes(t->training, args_of(run), t->sizes);
  tfm_status status = context_bind_symbols(run->context, t->sizes, error);
  if (status) return status;
  for (uint32_t i = 0; i < program->n_inputs; i++) {
    if (is_from_cut(&run->graph->inputs[i])) continue;
    if (run->graph->inputs[i].source == TFM_FROM_BATCH && run->parts->values) continue;
    t->values[i].dims = run->context->binding.input_dims + (size_t)i * TFM_MAX_RANK;
    t->values[i].dtype = program->inputs[i].dtype;
    t->values[i].rank = program->inputs[i].rank;
  }
  for (uint32_t i = 0; i < program->n_outputs; i++) {
    t->results[i].dims = run->context->binding.output_dims + (size_t)i * TFM_MAX_RANK;
    t->results[i].dtype = program->outputs[i].dtype;
    t->results[i].rank = program->outputs[i].rank;
  }
  return TFM_OK;
}

static tfm_status bind_engine(Run *run, tfm_error *error) {
  tfm_trainer *t = run->t;
  if (run->sizes) memcpy(t->sizes, run->sizes, t->training->n_sizes * sizeof *t->sizes);
  for (uint32_t i = 0; i < run->graph->n_outputs; i++) t->results[i].dims = t->result_dims + (size_t)i * TFM_MAX_RANK;
  return t->engine.bind(t->engine.user, run->graph, t->values, t->results, t->sizes, error);
}

static int64_t value_elements(const tfm_value *value) {
  int64_t n = 1;
  for (int32_t axis = 0; axis < value->rank; axis++) n *= value->dims[axis];
  return n;
}

enum { MASK_ALIGNMENT = 64 };

/* One without elements has a place too. */
static int64_t mask_bytes(const tfm_value *mask) {
  return round_up(greatest_of(1, value_elements(mask)), MASK_ALIGNMENT);
}

tfm_status training_reserve_masks(tfm_trainer *t, const tfm_train_graph *graph, const tfm_value *inputs,
                                  tfm_error *error) {
  int64_t bytes = 0;
  for (uint32_t i = 0; i < graph->n_inputs; i++)
    if (graph->inputs[i].source == TFM_FROM_DROPOUT) bytes += mask_bytes(&inputs[i]);
  if (bytes <= t->mask_bytes) return TFM_OK;
  char *more = allocate_large(&t->allocator, &bytes);
  if (!more) return tfm_refuse(error, TFM_E_NOMEM, "no memory for %lld bytes of dropout", (long long)bytes);
  release(&t->allocator, t->masks, (size_t)t->mask_bytes);
  t->masks = more;
  t->mask_bytes = bytes;
  return TFM_OK;
}

/* Masks that nothing reads are given without being drawn. */
static tfm_status give_masks(const Run *run, tfm_error *error) {
  tfm_trainer *t = run->t;
  const tfm_status status = training_reserve_masks(t, run->graph, t->values, error);
  if (status) return status;
  char *at = t->masks;
  const MaskPlace place = {t->seed, (uint32_t)(t->t + 1), run->first_item,
                           run->context ? run->context->program->features : 0};
  for (uint32_t i = 0; i < run->graph->n_inputs; i++) {
    const tfm_train_input *input = &run->graph->inputs[i];
    if (input->source != TFM_FROM_DROPOUT) continue;
    t->values[i].data = at;
    if (run->graph->draws)
      draw_mask(t->pool, &t->training->dropouts[input->number], t->values[i].dims, &place, (uint8_t *)at);
    at += mask_bytes(&t->values[i]);
  }
  return TFM_OK;
}

static void give_inputs(const Run *run) {
  tfm_trainer *t = run->t;
  for (uint32_t i = 0; i < run->graph->n_inputs; i++) {
    const tfm_train_input *input = &run->graph->inputs[i];
    tfm_value *value = &t->values[i];
    *value = (tfm_value){.dims = t->dims + (size_t)i * TFM_MAX_RANK};
    if (input->source == TFM_FROM_BATCH && run->parts->values) {
      *value = *value_of_part(run, input->number);
    } else if (input->source == TFM_FROM_BATCH) {
      memcpy(&value->data, args_of(run) + t->training->inputs[input->number], sizeof value->data);
    } else if (is_from_cut(input)) {
      *value = *mixer_of(t)->value(t->joined, input);
    } else if (input->source == TFM_FROM_SEED) {
      value->data = &t->seeds[input->number];
    } else if (input->source == TFM_FROM_PARAMETER) {
      const tfm_parameter *p = &t->training->parameters[input->number];
      *value = (tfm_value){.data = t->places[input->number], .rank = p->rank, .dims = p->dims};
    }
  }
}

/* As tfm_context_run, for a context that is bound. A cancellation that came before is not forgotten. */
static tfm_status run_context(const Run *run, tfm_error *error) {
  tfm_context *context = run->context;
  const tfm_program *program = context->program;
  tfm_status status = context_set_inputs(context, run->t->values, error);
  if (!status) status = ids_check_inputs(context, run->t->values, error);
  if (status) return status;
  for (uint32_t i = 0; i < program->n_inputs; i++) context->run.callers[i] = run->t->values[i].data;
  for (uint32_t i = 0; i < program->n_outputs; i++)
    context->run.callers[program->n_inputs + i] = run->t->results[i].data;
  run_forget_cancelled(context);
  status = check_cancelled(run->t, error);
  return status ? status : run_steps(context, error);
}

tfm_status run_bind(Run *run, tfm_error *error) {
  tfm_trainer *t = run->t;
  give_inputs(run);
  memset(t->sizes, 0, t->training->n_sizes * sizeof *t->sizes);
  tfm_status status = check_cancelled(t, error);
  if (!status) status = run->context ? bind_context(run, error) : bind_engine(run, error);
  if (status) return status;
  run->items = t->training->batch == TFM_NONE ? 0 : t->sizes[t->training->batch];
  return give_masks(run, error);
}

tfm_status run_bound(const Run *run, tfm_error *error) {
  tfm_trainer *t = run->t;
  return run->context ? run_context(run, error)
                      : t->engine.run(t->engine.user, run->graph, t->values, t->results, error);
}

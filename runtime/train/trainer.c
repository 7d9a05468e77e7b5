/* The life of a trainer: its options, its memory, its tensors, initial values, cancelling.
 *
 * In: a tfm_training, what runs its graphs, a tfm_trainer_options of any version. Out: a trainer whose weights are
 * zeroes until they are drawn or filled in. Refused: settings out of range, weights without an initial value. The
 * trainer, its arrays and its blocks are one block of memory. */
#include <math.h>
#include <string.h>

#include "error.h"
#include "training.h"

// ---- making ----

static uint32_t most_inputs(const tfm_training *training) {
  const tfm_train_graph *graphs[] = {&training->step.tops, &training->step.bottoms, &training->evaluation.tops,
                                     &training->evaluation.bottoms};
  uint32_t most = 0;
  for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
    if (graphs[i]->n_inputs > most) most = graphs[i]->n_inputs;
  return most;
}

static uint32_t most_outputs(const tfm_training *training) {
  return training->step.tops.n_outputs + training->evaluation.tops.n_outputs + training->step.bottoms.n_outputs +
         training->evaluation.bottoms.n_outputs;
}

/* What the optimizer keeps of each weight. A trainer that only evaluates has nothing but weights. */
static bool needs(const tfm_trainer *t, tfm_train_tensor which) {
  const bool is_sgd = t->training->optimizer == TFM_OPTIMIZER_SGD;
  if (which == TFM_TENSOR_WEIGHT) return true;
  if (!t->training->step.n_results) return false;
  if (which == TFM_TENSOR_FIRST) return !is_sgd || t->settings.momentum > 0;
  return which == TFM_TENSOR_GRADIENT || !is_sgd;
}

/* Places the arrays behind the trainer and returns the size of all; -1: it is too large to count. */
static int64_t place_arrays(tfm_trainer *t, char *block) {
  const tfm_training *training = t->training;
  const uint32_t inputs = most_inputs(training), outputs = most_outputs(training);
  Layout layout = {.block = block};
  layout_take(&layout, 1, sizeof *t);
  for (int i = 0; i < N_TENSORS; i++)
    t->blocks[i] =
        needs(t, (tfm_train_tensor)i) ? layout_take(&layout, (int64_t)training->floats, sizeof(float)) : NULL;
#define ARRAY(field, count) (t->field = layout_take(&layout, (count), sizeof *t->field))
  ARRAY(tops, outputs);
  ARRAY(bottoms, outputs);
  ARRAY(outputs, outputs);
  ARRAY(seeds, training->n_seeds);
  ARRAY(chunk_sums, t->n_chunks);
  ARRAY(values, inputs);
  ARRAY(results, outputs);
  ARRAY(dims, (int64_t)inputs * TFM_MAX_RANK);
  ARRAY(sizes, training->n_sizes);
#undef ARRAY
  return layout.bytes;
}

/* Members beyond the caller's struct_size are zero, which is the default of each. */
static tfm_trainer_options read_options(const tfm_trainer_options *given) {
  tfm_trainer_options known = {0};
  if (given) memcpy(&known, given, given->struct_size < sizeof known ? given->struct_size : sizeof known);
  return known;
}

static tfm_status check_settings(const tfm_train_settings *s, tfm_error *error) {
  const char *wrong = NULL;
  const double shares[] = {s->beta1, s->beta2, s->momentum};
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
    if (!(shares[i] >= 0 && shares[i] < 1)) wrong = "betas and momentum lie in [0, 1)";
  if (!(s->lr > 0 && isfinite(s->lr)) || !(s->eps > 0 && isfinite(s->eps))) wrong = "lr and eps are greater than 0";
  if (!(s->weight_decay >= 0 && s->clip_norm >= 0 && s->warmup >= 0 && s->steps >= 0))
    wrong = "weight_decay, clip_norm, warmup and steps are at least 0";
  if (s->schedule < TFM_SCHEDULE_CONSTANT || s->schedule > TFM_SCHEDULE_INVERSE_SQRT)
    wrong = "there is no such schedule";
  const bool has_peak = s->schedule == TFM_SCHEDULE_NOAM || s->schedule == TFM_SCHEDULE_INVERSE_SQRT;
  const bool has_end = s->schedule == TFM_SCHEDULE_LINEAR || s->schedule == TFM_SCHEDULE_COSINE;
  if (has_peak && !(s->warmup > 0)) wrong = "the schedule needs warmup";
  if (s->schedule == TFM_SCHEDULE_NOAM && !(s->model_size > 0)) wrong = "the schedule needs model_size";
  if (has_end && !(s->steps > s->warmup)) wrong = "the schedule needs steps, more than warmup";
  if (s->schedule == TFM_SCHEDULE_EXPONENTIAL && !(s->gamma > 0)) wrong = "the schedule needs gamma";
  return wrong ? tfm_refuse(error, TFM_E_INPUT, "settings of training: %s", wrong) : TFM_OK;
}

tfm_status tfm_trainer_create(const tfm_training *training, const tfm_train_engine *engine,
                              const tfm_trainer_options *given, tfm_trainer **trainer, tfm_error *error) {
  const tfm_trainer_options options = read_options(given);
  tfm_trainer shape = {.training = training, .engine = *engine, .allocator = options.allocator, .seed = options.seed};
  *trainer = NULL;
  shape.settings = options.settings ? *options.settings : training->settings;
  tfm_status status = check_settings(&shape.settings, error);
  if (status) return status;
  shape.pool = engine->step_tops ? engine->step_tops->pool : NULL;
  shape.n_chunks = optimizer_chunks(training);
  shape.bytes = place_arrays(&shape, NULL);
  char *block = shape.bytes < 0 ? NULL : allocate_room(&options.allocator, &shape.bytes);
  if (!block)
    return tfm_refuse(error, TFM_E_NOMEM, "no memory for the %llu numbers of each kind that a trainer has",
                      (unsigned long long)training->floats);
  if (options.allocator.allocate) memset(block, 0, (size_t)shape.bytes);
  place_arrays(&shape, block);
  *trainer = (tfm_trainer *)(void *)block;
  **trainer = shape;
  return tfm_succeed(error);
}

void tfm_trainer_destroy(tfm_trainer *t) {
  if (!t) return;
  const tfm_allocator allocator = t->allocator;
  release_room(&allocator, t->part, t->part_bytes);
  release(&allocator, t->masks, (size_t)t->mask_bytes);
  release_room(&allocator, t, t->bytes);
}

tfm_status tfm_trainer_draw(tfm_trainer *t, tfm_error *error) {
  for (uint32_t i = 0; i < t->training->n_parameters; i++) {
    const tfm_parameter *p = &t->training->parameters[i];
    if (p->initial.kind == TFM_INITIAL_NONE)
      return tfm_refuse(error, TFM_E_INPUT, "weight '%s' has no initial value", p->path);
    draw_initial(p, t->seed, tfm_trainer_data(t, i, TFM_TENSOR_WEIGHT));
  }
  return tfm_succeed(error);
}

float *tfm_trainer_data(tfm_trainer *t, uint32_t parameter, tfm_train_tensor which) {
  const tfm_parameter *p = &t->training->parameters[parameter];
  if (!t->blocks[which] || (which != TFM_TENSOR_WEIGHT && p->gradient == TFM_NONE)) return NULL;
  return t->blocks[which] + p->offset;
}

int64_t tfm_trainer_steps(const tfm_trainer *t) { return t->t; }
void tfm_trainer_set_steps(tfm_trainer *t, int64_t steps) { t->t = steps; }
void tfm_trainer_set_epoch(tfm_trainer *t, int64_t epoch) { t->epoch = epoch; }

void tfm_trainer_cancel(tfm_trainer *t) {
  atomic_store(&t->cancelled, true);
  tfm_context_cancel(t->engine.step_tops);
  tfm_context_cancel(t->engine.step_bottoms);
  tfm_context_cancel(t->engine.tops);
  tfm_context_cancel(t->engine.bottoms);
}

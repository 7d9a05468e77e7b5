/* Results of an objective, and the cotangents of its sums, from sums over all parts of a step.
 *
 * In: tops and bottoms, summed over parts, shards and ranks. Out: results in double; what each top of the loss gets as
 * its cotangent: a factor over a divisor, or the slope of a formula. Refuses nothing: a result whose divisor is 0 is
 * not a number. */
#include <string.h>

#include "train/trainer_parts.h"

static void compute_all(tfm_trainer *t, const tfm_objective *objective) {
  if (objective->n_steps) t->training->formulas(t, objective, NULL);
}

// ---- parts ----

/* What a top is multiplied by. */
static double factor_of(const tfm_trainer *t, const tfm_result_part *part) {
  if (part->bottom != TFM_NONE) return part->factor / t->bottoms[part->bottom];
  return part->formula != TFM_NONE ? part->factor / t->formula[part->formula] : part->factor;
}

static double term_of(const tfm_trainer *t, const tfm_result_part *part) {
  if (part->slope != TFM_NONE) return 0;
  return part->top == TFM_NONE ? part->factor * t->formula[part->formula] : factor_of(t, part) * t->tops[part->top];
}

void mixture_results(tfm_trainer *t, const tfm_objective *objective, double *results) {
  compute_all(t, objective);
  for (uint32_t i = 0; i < objective->n_results; i++) {
    const tfm_train_result *result = &objective->results[i];
    results[i] = 0;
    for (uint32_t k = 0; k < result->n_parts; k++) results[i] += term_of(t, &objective->parts[result->first_part + k]);
  }
}

/* Steps of metrics may read tops that are not known yet: only those of the loss count here. */
bool mixture_lacks_divisor(tfm_trainer *t, const tfm_objective *objective) {
  const tfm_train_result *loss = &objective->results[0];
  compute_all(t, objective);
  for (uint32_t i = 0; i < loss->n_parts; i++) {
    const tfm_result_part *part = &objective->parts[loss->first_part + i];
    if (part->bottom != TFM_NONE && t->bottoms[part->bottom] == 0) return true;
    if (part->top != TFM_NONE && part->formula != TFM_NONE && t->formula[part->formula] == 0) return true;
  }
  return false;
}

// ---- cotangents ----

static void find_slopes(tfm_trainer *t, const tfm_objective *objective, double *slopes) {
  const tfm_train_result *loss = &objective->results[0];
  memset(slopes, 0, objective->n_steps * sizeof *slopes);
  for (uint32_t i = 0; i < loss->n_parts; i++) {
    const tfm_result_part *part = &objective->parts[loss->first_part + i];
    if (part->slope == TFM_NONE && part->top == TFM_NONE) slopes[part->formula] += part->factor;
  }
  t->training->formulas(t, objective, slopes);
}

void mixture_find_seeds(tfm_trainer *t) {
  const tfm_objective *objective = &t->training->step;
  const tfm_train_result *loss = &objective->results[0];
  double *slopes = t->formula + objective->n_steps;
  uint32_t n = 0;
  compute_all(t, objective);
  if (objective->n_steps) find_slopes(t, objective, slopes);
  for (uint32_t i = 0; i < loss->n_parts; i++) {
    const tfm_result_part *part = &objective->parts[loss->first_part + i];
    if (part->top == TFM_NONE) continue;
    t->cotangents[n++] = (float)(part->slope != TFM_NONE ? slopes[part->slope] : factor_of(t, part));
  }
}

void mixture_give_seeds(tfm_trainer *t, bool is_first) {
  const tfm_objective *objective = &t->training->step;
  const tfm_train_result *loss = &objective->results[0];
  uint32_t n = 0;
  for (uint32_t i = 0; i < loss->n_parts; i++) {
    const tfm_result_part *part = &objective->parts[loss->first_part + i];
    if (part->top == TFM_NONE) continue;
    const bool counts = is_first || !objective->tops_once || !objective->tops_once[part->top];
    t->seeds[n] = counts ? t->cotangents[n] : 0;
    n++;
  }
}

/* Results of an objective, and the cotangents of its sums, from sums over all parts of a step.
 *
 * In: tops and bottoms, summed over parts, shards and ranks. Out: results in double; what each top of the loss gets as
 * its cotangent: a factor over a divisor, or the slope of a formula. Refuses nothing: a result whose divisor is 0 is
 * not a number. */
#include <math.h>
#include <string.h>

#include "train/trainer_parts.h"

// ---- formulas ----

static double compute(const tfm_formula_step *step, const double *values, const double *tops, const double *bottoms) {
  const uint32_t *in = step->operands;
  double x = 0, y = 0, z = 0;
  if (step->op == TFM_FORMULA_NUMBER) return step->number;
  if (step->op == TFM_FORMULA_TOP) return tops[in[0]];
  if (step->op == TFM_FORMULA_BOTTOM) return bottoms[in[0]];
  x = values[in[0]];
  y = values[in[1]];
  z = values[in[2]];
  switch ((tfm_formula_op)step->op) {
#define FORMULA(Enum, operands, value, slope0, slope1, slope2) \
  case TFM_FORMULA_##Enum:                                     \
    return value;
    TFM_FORMULA_OPS(FORMULA)
#undef FORMULA
    default:
      return NAN + z;
  }
}

/* Adds what the step hands on to its operands. An operand that nothing flows to gets nothing, not 0 times infinity. */
static void hand_on(const tfm_formula_step *step, const double *values, double v, double slope, double *slopes) {
  const uint32_t *in = step->operands;
  double of[TFM_FORMULA_OPERANDS] = {0};
  if (slope == 0 || step->op >= TFM_FORMULA_NUMBER) return;
  const double x = values[in[0]], y = values[in[1]], z = values[in[2]];
  (void)v;
  (void)y;
  (void)z;
  switch ((tfm_formula_op)step->op) {
#define FORMULA(Enum, operands, value, slope0, slope1, slope2) \
  case TFM_FORMULA_##Enum:                                     \
    of[0] = slope0;                                            \
    of[1] = slope1;                                            \
    of[2] = slope2;                                            \
    break;
    TFM_FORMULA_OPS(FORMULA)
#undef FORMULA
    default:
      break;
  }
  for (int i = 0; i < TFM_FORMULA_OPERANDS; i++)
    if (of[i] != 0) slopes[in[i]] += slope * of[i];
}

static void compute_all(tfm_trainer *t, const tfm_objective *objective) {
  for (uint32_t i = 0; i < objective->n_steps; i++)
    t->formula[i] = compute(&objective->steps[i], t->formula, t->tops, t->bottoms);
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

static void find_slopes(const tfm_trainer *t, const tfm_objective *objective, double *slopes) {
  const tfm_train_result *loss = &objective->results[0];
  memset(slopes, 0, objective->n_steps * sizeof *slopes);
  for (uint32_t i = 0; i < loss->n_parts; i++) {
    const tfm_result_part *part = &objective->parts[loss->first_part + i];
    if (part->slope == TFM_NONE && part->top == TFM_NONE) slopes[part->formula] += part->factor;
  }
  for (uint32_t i = objective->n_steps; i-- > 0;)
    hand_on(&objective->steps[i], t->formula, t->formula[i], slopes[i], slopes);
}

void mixture_find_seeds(tfm_trainer *t) {
  const tfm_objective *objective = &t->training->step;
  const tfm_train_result *loss = &objective->results[0];
  double *slopes = t->formula + objective->n_steps;
  uint32_t n = 0;
  compute_all(t, objective);
  find_slopes(t, objective, slopes);
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

/* Formulas over sums, such as exp(nll): their values, and what the loss changes with each step of them.
 *
 * In: sums over all parts of a step, the steps of an objective in their order. Out: a number for each step, in double;
 * slopes, from the last step to the first. Refuses nothing: what is not a number stays so. Nothing else of the runtime
 * refers to this file, so only libraries with results of this kind have it. */
#include <math.h>

#include "train/trainer_parts.h"

static double compute(const tfm_formula_step *step, const double *values, const double *tops, const double *bottoms) {
  const uint32_t *in = step->operands;
  if (step->op == TFM_FORMULA_NUMBER) return step->number;
  if (step->op == TFM_FORMULA_TOP) return tops[in[0]];
  if (step->op == TFM_FORMULA_BOTTOM) return bottoms[in[0]];
  return tfm_formula_value(step->op, values[in[0]], values[in[1]], values[in[2]]);
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
#include "tfm/abi/train_formula.def"
#undef FORMULA
    default:
      break;
  }
  for (int i = 0; i < TFM_FORMULA_OPERANDS; i++)
    if (of[i] != 0) slopes[in[i]] += slope * of[i];
}

void tfm_walk_formulas(tfm_trainer *t, const tfm_objective *objective, double *slopes) {
  double *values = t->formula;
  for (uint32_t i = 0; i < objective->n_steps && !slopes; i++)
    values[i] = compute(&objective->steps[i], values, t->tops, t->bottoms);
  for (uint32_t i = slopes ? objective->n_steps : 0; i-- > 0;)
    hand_on(&objective->steps[i], values, values[i], slopes[i], slopes);
}

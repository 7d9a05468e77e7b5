/* abi/train_formula.h: formulas over sums of items, such as exp(nll), as the compiler writes and the runtime computes
 * them: steps in order, each of numbers, sums and steps before it, in double. C99. */
#ifndef TFM_TRAIN_FORMULA_H
#define TFM_TRAIN_FORMULA_H

#include <math.h>
#include <stdint.h>

#include "tfm/abi/double_functions.h"

enum { TFM_FORMULA_OPERANDS = 3 };

typedef enum tfm_formula_op {
#define FORMULA(Enum, operands, value, slope0, slope1, slope2) TFM_FORMULA_##Enum,
#include "tfm/abi/train_formula.def"
#undef FORMULA
  TFM_FORMULA_NUMBER,
  TFM_FORMULA_LEAF,  /* of the compiler: one of the next two */
  TFM_FORMULA_TOP,   /* operand 0: an output of the tops, added up over all parts */
  TFM_FORMULA_BOTTOM /* of the bottoms */
} tfm_formula_op;

/* The value of an operation of the list above, of its operands; NaN for another. */
static inline double tfm_formula_value(uint32_t op, double x, double y, double z) {
  switch ((tfm_formula_op)op) {
#define FORMULA(Enum, operands, value, slope0, slope1, slope2) \
  case TFM_FORMULA_##Enum:                                     \
    return value;
#include "tfm/abi/train_formula.def"
#undef FORMULA
    default:
      return NAN + z;
  }
}

typedef struct tfm_formula_step { /* of a formula over sums: a tfm_formula_op of steps before it, or of an output */
  double number;
  uint32_t op, operands[TFM_FORMULA_OPERANDS];
} tfm_formula_step;

#endif

/* abi/train_formula.h: formulas over sums of items, such as exp(nll), as the compiler writes and the runtime computes
 * them: steps in order, each of numbers, sums and steps before it, in double. C99. */
#ifndef TFM_TRAIN_FORMULA_H
#define TFM_TRAIN_FORMULA_H

#include <stdint.h>

#include "tfm/abi/double_functions.h"

enum { TFM_FORMULA_OPERANDS = 3 };

/* FORMULA(Enum, operands, value, slope 0, slope 1, slope 2): of x, y, z, for the value v. A comparison is 1 or 0. Of
 * equal operands each of maximum and minimum gets half, as in graphs. */
#define TFM_FORMULA_OPS(FORMULA)                                                                      \
  FORMULA(STOP, 1, x, 0, 0, 0) /* stop_gradient */                                                    \
  FORMULA(NEG, 1, -x, -1, 0, 0)                                                                       \
  FORMULA(EXP, 1, double_exp(x), v, 0, 0)                                                             \
  FORMULA(LOG, 1, double_log(x), 1 / x, 0, 0)                                                         \
  FORMULA(SQRT, 1, sqrt(x), 0.5 / v, 0, 0)                                                            \
  FORMULA(RSQRT, 1, 1 / sqrt(x), -0.5 * v / x, 0, 0)                                                  \
  FORMULA(ABS, 1, fabs(x), x > 0 ? 1 : x < 0 ? -1 : x, 0, 0)                                          \
  FORMULA(TANH, 1, double_tanh(x), 1 - v * v, 0, 0)                                                   \
  FORMULA(SIGMOID, 1, 1 / (1 + double_exp(-x)), v * (1 - v), 0, 0)                                    \
  FORMULA(RELU, 1, x < 0 ? 0 : x, x > 0 ? 1 : 0, 0, 0)                                                \
  FORMULA(NOT, 1, x == 0, 0, 0, 0)                                                                    \
  FORMULA(ADD, 2, x + y, 1, 1, 0)                                                                     \
  FORMULA(SUB, 2, x - y, 1, -1, 0)                                                                    \
  FORMULA(MUL, 2, x * y, y, x, 0)                                                                     \
  FORMULA(DIV, 2, x / y, 1 / y, -v / y, 0)                                                            \
  FORMULA(MAXIMUM, 2, x > y || x != x ? x : y, x > y ? 1 : x == y ? 0.5 : 0, x < y ? 1 : x == y ? 0.5 : 0, 0) \
  FORMULA(MINIMUM, 2, x < y || x != x ? x : y, x < y ? 1 : x == y ? 0.5 : 0, x > y ? 1 : x == y ? 0.5 : 0, 0) \
  FORMULA(POWER, 2, double_pow(x, y), y == 0 ? 0 : y * double_pow(x, y - 1), x > 0 ? v * double_log(x) : 0, 0) \
  FORMULA(EQ, 2, x == y, 0, 0, 0)                                                                     \
  FORMULA(NE, 2, x != y, 0, 0, 0)                                                                     \
  FORMULA(LT, 2, x < y, 0, 0, 0)                                                                      \
  FORMULA(GT, 2, x > y, 0, 0, 0)                                                                      \
  FORMULA(LE, 2, x <= y, 0, 0, 0)                                                                     \
  FORMULA(GE, 2, x >= y, 0, 0, 0)                                                                     \
  FORMULA(AND, 2, x != 0 && y != 0, 0, 0, 0)                                                          \
  FORMULA(OR, 2, x != 0 || y != 0, 0, 0, 0)                                                           \
  FORMULA(WHERE, 3, x != 0 ? y : z, 0, x != 0 ? 1 : 0, x != 0 ? 0 : 1)

typedef enum tfm_formula_op {
#define FORMULA(Enum, operands, value, slope0, slope1, slope2) TFM_FORMULA_##Enum,
  TFM_FORMULA_OPS(FORMULA)
#undef FORMULA
  TFM_FORMULA_NUMBER,
  TFM_FORMULA_LEAF,  /* of the compiler: one of the next two */
  TFM_FORMULA_TOP,   /* operand 0: an output of the tops, added up over all parts */
  TFM_FORMULA_BOTTOM /* of the bottoms */
} tfm_formula_op;

typedef struct tfm_formula_step { /* of a formula over sums: a tfm_formula_op of steps before it, or of an output */
  double number;
  uint32_t op, operands[TFM_FORMULA_OPERANDS];
} tfm_formula_step;

#endif

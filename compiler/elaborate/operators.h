/* Operators: + - * / // % @, comparisons, and or not, unary minus, on numbers, run-time sizes and tensors. */
#ifndef TFM_ELABORATE_OPERATORS_H
#define TFM_ELABORATE_OPERATORS_H

#include "elaborate/elaborator.h"

/* `op` is the text of the operator. Poison in, poison out. */
Value operator_binary(Elaborator *e, const char *op, Value a, Value b);
Value operator_power(Elaborator *e, Value a, Value b);
Value operator_compare(Elaborator *e, const char *op, Value a, Value b);
Value operator_negate(Elaborator *e, Value v);
Value operator_not(Elaborator *e, Value v);
/* `and` (is_or false) and `or`, where the left side alone did not decide. */
Value operator_logic(Elaborator *e, bool is_or, Value a, Value b);
/* A boolean or a condition on sizes; poison after an error. */
Value truth_of(Elaborator *e, Value v, const char *what);
Node *matrix_product(Elaborator *e, Node *a, Node *b);
/* dropout(x, p) of an objective that is trained; else x. NULL after an error. */
Node *dropped_out(Elaborator *e, Node *x, double p);

#endif

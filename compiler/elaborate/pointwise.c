/* Primitives that work element by element, and what they do on numbers. */
#include <math.h>

#include "elaborate/primitives.h"
#include "elaborate/tensors.h"

Value primitive_unary(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], F32, "the operand of ", call->primitive->name);
  return x ? elementwise(e, call->primitive->name, call->primitive->op, 1, &x) : POISON;
}

Value primitive_unary_or_number(Elaborator *e, const PrimitiveCall *call) {
  Value v = call->arguments[0];
  if (!is_number(v)) return primitive_unary(e, call);
  double x = number_of(v);
  double y = call->primitive->op == OP_EXP ? exp(x) : call->primitive->op == OP_LOG ? log(x) : sqrt(x);
  bool is_defined = call->primitive->op == OP_LOG    ? x > 0
                    : call->primitive->op == OP_SQRT ? x >= 0
                                                     : !isinf(y) || isinf(x);
  if (is_defined || isnan(x)) return value_number(y);
  return fail(e, DIAG_RANGE, "%s(%V) is not a number", call->primitive->name, v);
}

Value primitive_extreme(Elaborator *e, const PrimitiveCall *call) {
  const char *name = call->primitive->name;
  Value x = call->arguments[0], y = call->arguments[1];
  if (is_tensor(x) || is_tensor(y)) {
    Node *xs[2];
    return operands_of(e, name, 2, (Value[]){x, y}, F32 | I32, xs) ? elementwise(e, name, call->primitive->op, 2, xs)
                                                                   : POISON;
  }
  if (!is_number(x) || !is_number(y)) return fail(e, DIAG_KIND, "%s of %K and %K", name, x, y);
  bool takes_y = call->primitive->op == OP_MAXIMUM ? number_of(y) > number_of(x) : number_of(y) < number_of(x);
  return takes_y ? y : x;
}

Value primitive_where(Elaborator *e, const PrimitiveCall *call) {
  Node *xs[3];
  xs[0] = tensor_of(e, call->arguments[0], BOOL, "the condition of where", "");
  if (!operands_of(e, "where", 2, call->arguments + 1, F32 | I32 | BOOL, xs + 1) || !xs[0]) return POISON;
  return elementwise(e, "where", OP_WHERE, 3, xs);
}

Value primitive_convert(Elaborator *e, const PrimitiveCall *call) {
  const char *name = call->primitive->name;
  Node *x = tensor_of(e, call->arguments[0], ANY_DTYPE, "the operand of ", name);
  if (!x) return POISON;
  DType dtype = name[0] == 'f' ? DTYPE_F32 : DTYPE_I32;
  if (x->dtype == dtype) return value_tensor(x);
  return made_value(e, build_unary(build_here(e), dtype == DTYPE_F32 ? OP_TO_F32 : OP_TO_I32, x));
}

Value primitive_no_conversion(Elaborator *e, const PrimitiveCall *call) {
  (void)call;
  return fail(e, DIAG_KIND, "bool is not a conversion: compare, as in x != 0");
}

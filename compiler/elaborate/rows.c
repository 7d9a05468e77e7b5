/* Primitives along an axis: products with weights, softmax, reductions, norms. */
#include <math.h>

#include "elaborate/operators.h"
#include "elaborate/primitives.h"
#include "elaborate/tensors.h"

Value primitive_linear(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], F32, "x of linear", "");
  Node *w = x ? tensor_of(e, call->arguments[1], F32, "w of linear", "") : NULL;
  if (!w) return POISON;
  if (w->rank != 2 || x->rank < 1) return fail(e, DIAG_SHAPE, "linear: x %T, w %T: w must be [out, in]", x, w);
  const Size *last = x->dims[x->rank - 1];
  if (!need_same(e, last, w->dims[1], "linear: the last axis of x %T and of w %T don't agree", x, w) ||
      !within_items(e, "linear", 1, &last) || !within_items(e, "linear", 2, w->dims)) {
    return POISON;
  }
  Node *bias = NULL;
  if (call->arguments[2].kind != VALUE_NONE) {
    bias = tensor_of(e, call->arguments[2], F32, "b of linear", "");
    if (!bias) return POISON;
    if (bias->rank != 1) return fail(e, DIAG_SHAPE, "linear: b must be [out], not %T", bias);
    if (!need_same(e, bias->dims[0], w->dims[0], "linear: w %T and b %T don't agree", w, bias)) return POISON;
  }
  Node *y = made(e, build_linear(build_here(e), x, w));
  return y && bias ? elementwise(e, "linear", OP_ADD, 2, (Node *[]){y, bias}) : value_tensor(y);
}

Value primitive_softmax(Elaborator *e, const PrimitiveCall *call) {
  const char *name = call->primitive->name;
  Node *x = tensor_of(e, call->arguments[0], F32, "x of ", name);
  int32_t axis = x ? own_axis(e, name, x, call->arguments[1]) : -1;
  return axis < 0 ? POISON : made_value(e, build_softmax(build_here(e), call->primitive->op, x, axis));
}

Value primitive_reduction(Elaborator *e, const PrimitiveCall *call) {
  const char *name = call->primitive->name;
  Value keepdim = call->arguments[2];
  Node *x = tensor_of(e, call->arguments[0], F32, "x of ", name);
  int32_t axis = x ? own_axis(e, name, x, call->arguments[1]) : -1;
  if (axis < 0) return POISON;
  if (keepdim.kind != VALUE_BOOL) return fail(e, DIAG_KIND, "keepdim must be true or false, not %K", keepdim);
  return made_value(e, build_reduce(build_here(e), call->primitive->op, x, axis, keepdim.as.boolean));
}

Value primitive_argmax(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], F32, "x of argmax", "");
  int32_t axis = x ? own_axis(e, "argmax", x, call->arguments[1]) : -1;
  return axis < 0 ? POISON : made_value(e, build_reduce(build_here(e), OP_ARGMAX, x, axis, false));
}

// ---- norms ----

/* A parameter of a norm: [size of the last axis of x]; NULL for `none`. False after an error. */
static bool norm_parameter(Elaborator *e, const char *name, const char *letter, Node *x, Value v, Node **parameter) {
  *parameter = NULL;
  if (v.kind == VALUE_NONE) return true;
  Node *p = tensor_of(e, v, F32, letter[0] == 'w' ? "w of " : "b of ", name);
  if (!p) return false;
  if (p->rank != 1) {
    fail(e, DIAG_SHAPE, "%s: %s must have one axis, not %T", name, letter, p);
    return false;
  }
  *parameter = p;
  return need_same(e, x->dims[x->rank - 1], p->dims[0], "%s: x %T and %s %T don't agree", name, x, letter, p);
}

static Node *norm_operand(Elaborator *e, const char *name, Value v, Value eps, double *epsilon) {
  Node *x = tensor_of(e, v, F32, "x of ", name);
  if (!x || !real_of(e, eps, "eps", epsilon)) return NULL;
  if (!(*epsilon >= 0) || isinf(*epsilon)) {
    fail(e, DIAG_RANGE, "eps of %s must be 0 or a positive number, not %V", name, eps);
    return NULL;
  }
  if (x->rank < 1) fail(e, DIAG_SHAPE, "%s of a tensor without axes", name);
  return x->rank < 1 || !within_items(e, name, 1, &x->dims[x->rank - 1]) ? NULL : x;
}

Value primitive_layer_norm(Elaborator *e, const PrimitiveCall *call) {
  double eps;
  Node *w, *b, *x = norm_operand(e, "layer_norm", call->arguments[0], call->arguments[3], &eps);
  if (!x || !norm_parameter(e, "layer_norm", "w", x, call->arguments[1], &w) ||
      !norm_parameter(e, "layer_norm", "b", x, call->arguments[2], &b)) {
    return POISON;
  }
  return made_value(e, build_layer_norm(build_here(e), x, w, b, eps));
}

Value primitive_rms_norm(Elaborator *e, const PrimitiveCall *call) {
  double eps;
  Node *w, *x = norm_operand(e, "rms_norm", call->arguments[0], call->arguments[2], &eps);
  if (!x || !norm_parameter(e, "rms_norm", "w", x, call->arguments[1], &w)) return POISON;
  return made_value(e, build_rms_norm(build_here(e), x, w, eps));
}

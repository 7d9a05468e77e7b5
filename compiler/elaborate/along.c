/* Primitives that select, move or add up along one axis: cumsum, shift, topk, gather; steps of slices; and powers.
 *
 * In: tensors, an axis, numbers. Out: nodes. Refuses axes shorter than k, shapes that do not agree, exponents that the
 * language does not define, and what would mix the items of a ragged batch. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked_size.h"
#include "elaborate/operators.h"
#include "elaborate/primitives.h"
#include "elaborate/tensors.h"
#include "tfm/abi/double_functions.h"

Value primitive_cumsum(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], F32 | I32, "x of cumsum", "");
  int32_t axis = x ? own_axis(e, "cumsum", x, call->arguments[1]) : -1;
  return axis < 0 ? POISON : made_value(e, build_cumsum(build_here(e), x, axis));
}

/* A shift by nothing is x itself. Rows that are longer than any run, INT64_MIN too, have no element that is seen. */
Value primitive_shift(Elaborator *e, const PrimitiveCall *call) {
  int64_t n;
  Node *x = tensor_of(e, call->arguments[0], ANY_DTYPE, "x of shift", "");
  if (!x || !integer_of(e, call->arguments[1], "n of shift", &n)) return POISON;
  int32_t axis = own_axis(e, "shift", x, call->arguments[2]);
  if (axis < 0) return POISON;
  if (n == INT64_MIN) n++;
  return n == 0 ? value_tensor(x) : made_value(e, build_shift(build_here(e), x, n, axis));
}

/* The values are picked by the indices, so that both agree. */
Value primitive_topk(Elaborator *e, const PrimitiveCall *call) {
  int64_t k;
  Node *x = tensor_of(e, call->arguments[0], F32, "x of topk", "");
  if (!x || !integer_of(e, call->arguments[1], "k of topk", &k)) return POISON;
  int32_t axis = own_axis(e, "topk", x, call->arguments[2]);
  if (axis < 0) return POISON;
  if (k < 1 || k > INT32_MAX) return fail(e, DIAG_RANGE, "topk: k must be 1 or more, not %D", k);
  const Size *n = x->dims[axis], *least = size_const(e->sizes, k);
  if (!need(e, value_compare(e->arena, e->sizes, OP_GE, n, least), DIAG_RANGE,
            "topk: the %Z greatest of an axis of %Z", least, n)) {
    return POISON;
  }
  Tuple *both = ARENA_NEW(e->arena, Tuple);
  *both = (Tuple){2, ARENA_ARRAY(e->arena, Node *, 2)};
  both->items[1] = made(e, build_topk(build_here(e), x, k, axis));
  both->items[0] = both->items[1] ? made(e, build_take(build_here(e), x, both->items[1], axis)) : NULL;
  return both->items[0] ? (Value){VALUE_TUPLE, {.tuple = both}} : POISON;
}

/* The shape of a tensor with a 1 at the axis. */
static Shape shape_beside(Elaborator *e, const Node *x, int32_t axis) {
  Shape shape = shape_of(x);
  shape.dims[axis] = size_const(e->sizes, 1);
  return shape;
}

Value primitive_gather_along(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], ANY_DTYPE, "x of gather", "");
  Node *ids = x ? tensor_of(e, call->arguments[1], I32, "ids of gather", "") : NULL;
  if (!ids) return POISON;
  if (x->rank != ids->rank) {
    return fail(e, DIAG_SHAPE, "gather: x %T and ids %T need the same number of axes; rows of a table are x[ids]", x,
                ids);
  }
  int32_t axis = own_axis(e, "gather", x, call->arguments[2]);
  if (axis < 0 || !within_items(e, "gather", 1, &ids->dims[axis])) return POISON;
  Shape shapes[2] = {shape_beside(e, x, axis), shape_beside(e, ids, axis)}, result;
  if (!broadcast_shapes(e, "gather", 2, shapes, (Node *[]){x, ids}, &result)) return POISON;
  result.dims[axis] = ids->dims[axis];
  Node *node = made(e, build_take(build_here(e), x, ids, axis));
  return value_tensor(with_known_dims(e, node, result.rank, result.dims));
}

// ---- steps of slices ----

/* (dim + step - 1) // step, which is a polynomial if the step divides everything but the constant. */
const Size *places_of(Elaborator *e, const Size *dim, int64_t step) {
  const Size *over = size_add(e->sizes, dim, size_const(e->sizes, step - 1));
  if (!over) {
    fail(e, DIAG_LIMIT, "a size is too large to be computed");
    return NULL;
  }
  Value places = operator_binary(e, "//", value_size(over), value_integer(step));
  return is_poison(places) ? NULL : size_of(e->sizes, places);
}

// ---- powers ----

/* By squaring, from the highest bit down: x**5 = ((x x)(x x)) x. NULL after an error. */
static Value integer_power(Elaborator *e, Node *x, uint64_t n) {
  Value y = value_tensor(x), base = y;
  uint64_t bit = n;
  while (bit & (bit - 1)) bit &= bit - 1;
  for (bit >>= 1; bit && !is_poison(y); bit >>= 1) {
    y = operator_binary(e, "*", y, y);
    if (n & bit) y = operator_binary(e, "*", y, base);
  }
  return y;
}

/* 1 in the shape of x. */
static Value ones_like(Elaborator *e, const Node *x) {
  return made_value(e, build_filled(build_here(e), x->dtype, 1, x->rank, (const Size *const *)x->dims));
}

/* Of an f32 tensor with a number that needs no pow: an integer of at most 16, one half. False: it needs one. */
static bool simple_power(Elaborator *e, Node *x, double n, Value *result) {
  bool is_root = fabs(n) == 0.5;
  if (!is_root && !(fabs(n) <= 16 && n == floor(n))) return false;
  *result = n == 0 ? ones_like(e, x)
            : is_root ? elementwise(e, "'**'", OP_SQRT, 1, &x)
                      : integer_power(e, x, (uint64_t)fabs(n));
  if (n < 0) *result = operator_binary(e, "/", value_integer(1), *result);
  return true;
}

static Value tensor_power(Elaborator *e, Value a, Value b) {
  Node *xs[2];
  Shape result;
  Value simple;
  if (is_tensor(a) && is_number(b)) {
    Node *x = tensor_of(e, a, F32 | I32, "the base of '**'", "");
    if (!x) return POISON;
    if (x->dtype == DTYPE_I32) {
      if (b.kind != VALUE_INTEGER || b.as.integer < 0)
        return fail(e, DIAG_RANGE, "'**' of an i32 tensor needs an integer exponent of 0 or more, not %V", b);
      return b.as.integer ? integer_power(e, x, (uint64_t)b.as.integer) : ones_like(e, x);
    }
    if (simple_power(e, x, number_of(b), &simple)) return simple;
  }
  if (!operands_of(e, "'**'", 2, (Value[]){a, b}, F32, xs)) return POISON;
  Shape shapes[2] = {shape_of(xs[0]), shape_of(xs[1])};
  if (!broadcast_shapes(e, "'**'", 2, shapes, xs, &result)) return POISON;
  Node *node = made(e, build_binary(build_here(e), OP_POWER, xs[0], xs[1]));
  return value_tensor(with_known_dims(e, node, result.rank, result.dims));
}

/* a to the n, exactly. False: it does not fit. */
static bool power_of_integer(int64_t a, int64_t n, int64_t *result) {
  *result = 1;
  if (a == 1 || (a == 0 && n > 0) || a == -1) n = a == -1 ? n % 2 : n > 0;
  for (; n > 0; n--) {
    if (!checked_mul(*result, a, result)) return false;
  }
  return true;
}

static Value power_of_size(Elaborator *e, Value a, int64_t n) {
  const Size *size = size_of(e->sizes, a), *power = size_const(e->sizes, 1);
  if (n > SIZE_MAX_DEGREE) n = SIZE_MAX_DEGREE + 1;
  for (; n > 0 && power; n--) power = size_mul(e->sizes, power, size);
  return power ? value_size(power) : fail(e, DIAG_LIMIT, "this power of %V is too large to be computed", a);
}

/* An integer to an integer of 0 or more is an integer; of other numbers the power is a double, and it must be a number:
 * in a configuration NaN and infinity are mistakes. */
Value operator_power(Elaborator *e, Value a, Value b) {
  if (is_tensor(a) || is_tensor(b)) return tensor_power(e, a, b);
  bool is_whole = b.kind == VALUE_INTEGER && b.as.integer >= 0;
  if (a.kind == VALUE_SIZE && is_whole) return power_of_size(e, a, b.as.integer);
  if (!is_number(a) || !is_number(b)) return fail(e, DIAG_KIND, "'**' of %K and %K is not defined", a, b);
  if (a.kind == VALUE_INTEGER && is_whole) {
    int64_t result;
    if (power_of_integer(a.as.integer, b.as.integer, &result)) return value_integer(result);
    return fail(e, DIAG_RANGE, "%V ** %V does not fit in 64 bits", a, b);
  }
  double power = double_pow(number_of(a), number_of(b));
  if (isfinite(power) || isinf(number_of(a)) || isinf(number_of(b))) return value_number(power);
  return fail(e, DIAG_RANGE, "%V ** %V is not a finite number", a, b);
}

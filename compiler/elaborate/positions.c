/* Primitives made of positions: counting, causal masks, sinusoids, rotary embeddings; and rows of tables. */
#include <math.h>
#include <string.h>

#include "elaborate/primitives.h"
#include "elaborate/tensors.h"

Value primitive_positions(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], ANY_DTYPE, "x of positions", "");
  int32_t axis = x ? own_axis(e, "positions", x, call->arguments[1]) : -1;
  return axis < 0 ? POISON : made_value(e, build_positions(build_here(e), x->dims[axis]));
}

Value primitive_causal_mask(Elaborator *e, const PrimitiveCall *call) {
  static const char *const what[] = {"q of causal_mask", "k of causal_mask"};
  const Size *times[2];
  for (int i = 0; i < 2; i++) {
    Node *x = tensor_of(e, call->arguments[i], ANY_DTYPE, what[i], "");
    int32_t axis = x ? own_axis(e, "causal_mask", x, value_integer(-2)) : -1;
    if (axis < 0) return POISON;
    times[i] = x->dims[axis];
  }
  return made_value(e, build_causal_mask(build_here(e), times[0], times[1]));
}

/* Whether the layout is `first` rather than `second`; false after an error. */
static bool layout_is(Elaborator *e, Value v, const char *first, const char *second, bool *is_first) {
  *is_first = v.kind == VALUE_STRING && strcmp(v.as.string, first) == 0;
  if (*is_first || (v.kind == VALUE_STRING && strcmp(v.as.string, second) == 0)) return true;
  fail(e, DIAG_RANGE, "layout must be \"%s\" or \"%s\", not %V", first, second, v);
  return false;
}

static bool base_of(Elaborator *e, Value v, double *base) {
  if (!real_of(e, v, "base", base)) return false;
  if (*base > 0 && !isinf(*base)) return true;
  fail(e, DIAG_RANGE, "base must be a positive number, not %V", v);
  return false;
}

Value primitive_sinusoid(Elaborator *e, const PrimitiveCall *call) {
  int64_t d;
  double base;
  bool is_interleaved;
  Node *pos = tensor_of(e, call->arguments[0], I32 | F32, "pos of sinusoid", "");
  if (!pos || !integer_of(e, call->arguments[1], "d of sinusoid", &d) ||
      !layout_is(e, call->arguments[2], "interleaved", "concatenated", &is_interleaved) ||
      !base_of(e, call->arguments[3], &base) || !rank_fits(e, "the result", pos->rank + 1)) {
    return POISON;
  }
  if (d < 0 || d > MAX_DIMENSION) return fail(e, DIAG_RANGE, "d of sinusoid must be a size, not %D", d);
  return made_value(e, build_sinusoid(build_here(e), pos, d, base, is_interleaved));
}

Value primitive_rotary(Elaborator *e, const PrimitiveCall *call) {
  double base;
  bool is_half;
  int64_t width;
  Node *x = tensor_of(e, call->arguments[0], F32, "x of rotary", "");
  Node *pos = x ? tensor_of(e, call->arguments[1], I32 | F32, "pos of rotary", "") : NULL;
  if (!pos || !base_of(e, call->arguments[2], &base) ||
      !layout_is(e, call->arguments[3], "half", "interleaved", &is_half)) {
    return POISON;
  }
  if (x->rank < 2 || !size_is_const(x->dims[x->rank - 1], &width) || width % 2 != 0) {
    return fail(e, DIAG_SHAPE, "rotary of %K: the last axis must be even", value_tensor(x));
  }
  Shape result;
  if (!broadcast_shapes(e, "rotary", 2, (Shape[]){leading(x, 1), shape_of(pos)}, (Node *[]){x, pos}, &result))
    return POISON;
  if (result.rank + 1 != x->rank) {
    return fail(e, DIAG_SHAPE, "rotary: pos %T has more axes than x %T without the last", pos, x);
  }
  for (uint32_t i = 0; i < result.rank; i++) {
    if (size_equals(x->dims[i], 1) && !size_equals(result.dims[i], 1)) {
      return fail(e, DIAG_SHAPE, "rotary: pos %T has more positions than x %T", pos, x);
    }
  }
  return made_value(e, build_rotary(build_here(e), x, pos, base, !is_half));
}

/* Positions are 0 1 2 ...: whether the table has a row for each is known before anything is computed. */
static bool has_rows_for(Elaborator *e, const Node *table, const Node *ids) {
  if (ids->op != OP_POSITIONS) return true;
  const Size *n = ids->dims[0], *rows = table->dims[0];
  return need(e, value_compare(e->arena, e->sizes, OP_LE, n, rows), DIAG_RANGE,
              "%Z positions, but the table has %Z rows: its legal range is [0, %Z)", n, rows, rows);
}

Value primitive_gather(Elaborator *e, Node *table, Value v) {
  Node *ids = tensor_of(e, v, I32, "an index", "");
  if (!ids) return POISON;
  if (table->rank < 1) return fail(e, DIAG_SHAPE, "a table needs an axis");
  if (!within_items(e, "a table", 1, table->dims)) return POISON;
  if (!rank_fits(e, "the result", (int64_t)ids->rank + table->rank - 1) || !has_rows_for(e, table, ids)) return POISON;
  return made_value(e, build_gather(build_here(e), table, ids));
}

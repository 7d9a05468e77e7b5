/* Primitives: the functions of the language that are written in C, all but those of shapes.c.
 *
 * In: the rows of primitives.def; the arguments of a call, one for each parameter. Out: a scope that holds every
 * primitive; the nodes that a call builds. Refuses operands of the wrong type or shape, axes that a ragged batch
 * forbids, and settings out of range. Numbers are computed on the spot where a row says so. */
#include "elaborate/primitives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "elaborate/adapters.h"
#include "elaborate/operators.h"
#include "elaborate/tensors.h"
#include "tfm/abi/double_functions.h"

// ---- the table ----

#define PRIMITIVE(name, parameters, function, line) \
  Value primitive_##function(Elaborator *e, const PrimitiveCall *call);
#include "elaborate/primitives.def"

typedef struct PrimitiveRow {
  const char *name, *parameters;
  Value (*function)(Elaborator *e, const PrimitiveCall *call);
} PrimitiveRow;

static const PrimitiveRow rows[] = {
#define PRIMITIVE(name, parameters, function, line) {#name, parameters, primitive_##function},
#include "elaborate/primitives.def"
};

/* The operation of ops.def with the name of the primitive; N_OPS if there is none. */
static OpKind op_named(const char *name) {
  int op = 0;
  while (op < N_OPS && strcmp(op_table[op].name, name) != 0) op++;
  return (OpKind)op;
}

/* A default as primitives.def writes it: none, false, a string, an integer or a double. The file is ours, so nothing
 * else is expected. */
static Value constant(Elaborator *e, const char *text, size_t length) {
  const char *word = map_intern(e->names, text, length);
  if (strcmp(word, "none") == 0) return NONE_VALUE;
  if (strcmp(word, "false") == 0) return value_bool(false);
  if (word[0] == '"') return value_string(arena_strndup(e->arena, word + 1, length - 2));
  double number = strtod(word, NULL);
  return strchr(word, '.') ? value_number(number) : value_integer((int64_t)number);
}

/* One parameter: "x", "x = default" or "xs...". */
static void read_parameter(Elaborator *e, Primitive *p, const char *text, size_t length) {
  size_t name = strcspn(text, " ,.");
  if (name < length && text[name] == '.') {
    p->is_variadic = true;
    return;
  }
  CHECK(p->n_parameters < MAX_PARAMETERS, "too many parameters of %s", p->name);
  p->parameters[p->n_parameters] = map_intern(e->names, text, name);
  size_t value = name + strlen(" = ");
  p->defaults[p->n_parameters++] = name < length ? constant(e, text + value, length - value) : MISSING;
}

/* Reads the row of a primitive. Parameter names are interned into the names of the model, so that arguments are found
 * by pointer. */
static const Primitive *primitive_new(Elaborator *e, size_t row) {
  Primitive *p = ARENA_NEW(e->arena, Primitive);
  p->name = map_intern(e->names, rows[row].name, strlen(rows[row].name));
  p->function = rows[row].function;
  p->op = op_named(p->name);
  for (const char *text = rows[row].parameters; *text;) {
    size_t length = strcspn(text, ",");
    read_parameter(e, p, text, length);
    text += length + (text[length] ? strlen(", ") : 0);
  }
  return p;
}

void primitives_define(Elaborator *e, Scope *scope) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const Primitive *p = primitive_new(e, i);
    scope_put(e->arena, scope, p->name, (Value){VALUE_PRIMITIVE, {.primitive = p}});
  }
}

// ---- element by element ----

Value primitive_unary(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], F32, "the operand of ", call->primitive->name);
  return x ? elementwise(e, call->primitive->name, call->primitive->op, 1, &x) : POISON;
}

/* Config values use these on numbers, sqrt(head_dim) above all. A result that is NaN or infinite is refused unless
 * the operand was: in a configuration it is a mistake. */
Value primitive_unary_or_number(Elaborator *e, const PrimitiveCall *call) {
  Value v = call->arguments[0];
  if (!is_number(v)) return primitive_unary(e, call);
  double x = number_of(v);
  double y = call->primitive->op == OP_EXP ? double_exp(x) : call->primitive->op == OP_LOG ? double_log(x) : sqrt(x);
  bool is_defined = call->primitive->op == OP_LOG    ? x > 0
                    : call->primitive->op == OP_SQRT ? x >= 0
                                                     : !isinf(y) || isinf(x);
  if (is_defined || isnan(x)) return value_number(y);
  return fail(e, DIAG_RANGE, "%s(%V) is not a finite number", call->primitive->name, v);
}

/* A number becomes an integer, for sizes are computed with it. */
Value primitive_rounding(Elaborator *e, const PrimitiveCall *call) {
  Value v = call->arguments[0];
  if (v.kind == VALUE_INTEGER) return v;
  if (v.kind != VALUE_NUMBER) return primitive_unary(e, call);
  OpKind op = call->primitive->op;
  double x = v.as.number, y = op == OP_FLOOR ? floor(x) : op == OP_CEIL ? ceil(x) : nearbyint(x);
  if (y >= -0x1p63 && y < 0x1p63) return value_integer((int64_t)y);
  return fail(e, DIAG_RANGE, "%s(%V) does not fit in 64 bits", call->primitive->name, v);
}

/* On two numbers the result keeps the kind of the operand that it is; for equal ones that is the first. */
static Value extreme(Elaborator *e, const char *name, OpKind op, Value x, Value y) {
  if (is_tensor(x) || is_tensor(y)) {
    Node *xs[2];
    return operands_of(e, name, 2, (Value[]){x, y}, F32 | I32, xs) ? elementwise(e, name, op, 2, xs) : POISON;
  }
  if (!is_number(x) || !is_number(y)) return fail(e, DIAG_KIND, "%s of %K and %K is not defined", name, x, y);
  bool takes_y = op == OP_MAXIMUM ? number_of(y) > number_of(x) : number_of(y) < number_of(x);
  return takes_y ? y : x;
}

Value primitive_extreme(Elaborator *e, const PrimitiveCall *call) {
  return extreme(e, call->primitive->name, call->primitive->op, call->arguments[0], call->arguments[1]);
}

/* The condition is checked before the others, but their faults are reported as well. */
Value primitive_where(Elaborator *e, const PrimitiveCall *call) {
  Node *xs[3];
  xs[0] = tensor_of(e, call->arguments[0], BOOL, "the condition of where", "");
  if (!operands_of(e, "where", 2, call->arguments + 1, F32 | I32 | BOOL, xs + 1) || !xs[0]) return POISON;
  return elementwise(e, "where", OP_WHERE, 3, xs);
}

/* x, refused by the run where a condition is false: a division by 1, or by 0. */
Value primitive_checked(Elaborator *e, const PrimitiveCall *call) {
  Node *xs[2] = {tensor_of(e, call->arguments[0], I32, "x of checked", "")};
  Node *holds = tensor_of(e, call->arguments[1], BOOL, "what checked is to hold", "");
  const Value text = call->arguments[2];
  if (!xs[0] || !holds || is_poison(text)) return POISON;
  if (text.kind != VALUE_STRING) return fail(e, DIAG_KIND, "checked needs a text of what is wrong, not %K", text);
  const char *filled = filled_text(e, text.as.string, call->scope);
  if (!filled) return POISON;
  xs[1] = made(e, build_unary(build_here(e), OP_TO_I32, holds));
  e->refusal = filled;
  const Value result = elementwise(e, "checked", OP_FLOORDIV, 2, xs);
  e->refusal = NULL;
  return result;
}

/* A setting such as partial_rotary_factor = 0.25 becomes a size by i32(0.25 * h). A size is an integer already; as f32
 * it is a tensor, because only the run knows it. */
static Value convert_number(Elaborator *e, bool to_f32, Value v) {
  Node *node;
  if (v.kind == VALUE_SIZE && to_f32) return operands_of(e, "f32", 1, &v, F32, &node) ? value_tensor(node) : POISON;
  if (to_f32) return value_number((float)number_of(v));
  if (v.kind == VALUE_SIZE) return v;
  double x = trunc(number_of(v));
  if (x >= INT32_MIN && x <= INT32_MAX) return value_integer((int64_t)x);
  return fail(e, DIAG_RANGE, "%V does not fit in i32", v);
}

/* f32(x) or i32(x); a tensor that has the type already is returned as it is. */
Value primitive_convert(Elaborator *e, const PrimitiveCall *call) {
  const char *name = call->primitive->name;
  Value v = call->arguments[0];
  if (is_number(v) || v.kind == VALUE_SIZE) return convert_number(e, name[0] == 'f', v);
  Node *x = tensor_of(e, v, ANY_DTYPE, "the operand of ", name);
  if (!x) return POISON;
  DType dtype = name[0] == 'f' ? DTYPE_F32 : DTYPE_I32;
  if (x->dtype == dtype) return value_tensor(x);
  return made_value(e, build_unary(build_here(e), dtype == DTYPE_F32 ? OP_TO_F32 : OP_TO_I32, x));
}

/* `bool` must be a name, so that dtype(x) == bool can be written; a conversion would have to say what NaN is. */
Value primitive_no_conversion(Elaborator *e, const PrimitiveCall *call) {
  (void)call;
  return fail(e, DIAG_KIND, "bool is not a conversion: compare, as in x != 0");
}

// ---- along an axis ----

/* x w^T + b with weights as torch.nn.Linear keeps them. The bias is an addition of its own here; the pass that fuses
 * epilogues puts it into the product. */
Value primitive_linear(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], F32, "x of linear", "");
  Node *w = x ? tensor_of(e, call->arguments[1], F32, "w of linear", "") : NULL;
  if (!w) return POISON;
  if (w->rank != 2 || x->rank < 1) return fail(e, DIAG_SHAPE, "linear: x %T, w %T: w must be [out, in]", x, w);
  const Size *last = x->dims[x->rank - 1];
  if (!need_same(e, last, w->dims[1], "linear: the last axis of x %T and of w %T do not agree", x, w) ||
      !within_items(e, "linear", 1, &last) || !within_items(e, "linear", 2, w->dims)) {
    return POISON;
  }
  Node *bias = NULL;
  if (call->arguments[2].kind != VALUE_NONE) {
    bias = tensor_of(e, call->arguments[2], F32, "b of linear", "");
    if (!bias) return POISON;
    if (bias->rank != 1) return fail(e, DIAG_SHAPE, "linear: b must be [out], not %T", bias);
    if (!need_same(e, bias->dims[0], w->dims[0], "linear: w %T and b %T do not agree", w, bias)) return POISON;
  }
  Node *y = product_with_adapter(e, x, w, false);
  return y && bias ? elementwise(e, "linear", OP_ADD, 2, (Node *[]){y, bias}) : value_tensor(y);
}

Value primitive_softmax(Elaborator *e, const PrimitiveCall *call) {
  const char *name = call->primitive->name;
  Node *x = tensor_of(e, call->arguments[0], F32, "x of ", name);
  int32_t axis = x ? own_axis(e, name, x, call->arguments[1]) : -1;
  return axis < 0 ? POISON : made_value(e, build_softmax(build_here(e), call->primitive->op, x, axis));
}

/* sum, max and min of a list: its elements together, from left to right. */
static Value reduce_list(Elaborator *e, const PrimitiveCall *call, const List *list) {
  const char *name = call->primitive->name;
  OpKind op = call->primitive->op;
  if (call->is_given[1] || call->is_given[2])
    return fail(e, DIAG_ARGUMENT, "%s of a list takes no axis: its elements are put together one by one", name);
  if (!list->n && op != OP_SUM) return fail(e, DIAG_RANGE, "%s of an empty list", name);
  Value result = list->n ? list->items[0] : value_integer(0);
  for (uint32_t i = 0; i < list->n && !is_poison(result); i++) {
    Value v = list->items[i];
    if (!is_number(v) && !is_tensor(v) && (op != OP_SUM || v.kind != VALUE_SIZE))
      return fail(e, DIAG_KIND, "%s of a list of tensors or numbers, not of %K", name, v);
    if (i == 0) continue;
    result = op == OP_SUM ? operator_binary(e, "+", result, v)
                          : extreme(e, name, op == OP_MAX ? OP_MAXIMUM : OP_MINIMUM, result, v);
  }
  return result;
}

/* The node of an operation along one axis; NULL after an error. */
static Node *reduced(Elaborator *e, const PrimitiveCall *call, OpKind op) {
  const char *name = call->primitive->name;
  Value keepdim = call->arguments[2];
  Node *x = tensor_of(e, call->arguments[0], op_takes(op, DTYPE_I32) ? F32 | I32 : F32, "x of ", name);
  int32_t axis = x ? own_axis(e, name, x, call->arguments[1]) : -1;
  if (axis < 0) return NULL;
  if (keepdim.kind == VALUE_BOOL) return made(e, build_reduce(build_here(e), op, x, axis, keepdim.as.boolean));
  fail(e, DIAG_KIND, "keepdim must be true or false, not %K", keepdim);
  return NULL;
}

/* sum, mean, max and min along one axis; all but the mean of i32 too. */
Value primitive_reduction(Elaborator *e, const PrimitiveCall *call) {
  if (call->arguments[0].kind == VALUE_LIST && call->primitive->op != OP_MEAN)
    return reduce_list(e, call, call->arguments[0].as.list);
  return value_tensor(reduced(e, call, call->primitive->op));
}

/* amax and amin: max and min, whose gradient equal ones share. */
Value primitive_shared_extreme(Elaborator *e, const PrimitiveCall *call) {
  Node *y = reduced(e, call, strcmp(call->primitive->name, "amax") == 0 ? OP_MAX : OP_MIN);
  if (y) y->attr.shares_gradient = true;
  return value_tensor(y);
}

Value primitive_argmax(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], F32, "x of argmax", "");
  int32_t axis = x ? own_axis(e, "argmax", x, call->arguments[1]) : -1;
  return axis < 0 ? POISON : made_value(e, build_reduce(build_here(e), OP_ARGMAX, x, axis, false));
}

// ---- norms ----

/* A parameter of a norm: [size of the last axis of x], or NULL for `none`. False after an error. */
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
  return need_same(e, x->dims[x->rank - 1], p->dims[0], "%s: x %T and %s %T do not agree", name, x, letter, p);
}

/* x of a norm, and its epsilon. An epsilon of 0 is allowed, since torch allows it. NULL after an error. */
static Node *norm_operand(Elaborator *e, const char *name, Value v, Value eps, double *epsilon) {
  Node *x = tensor_of(e, v, F32, "x of ", name);
  if (!x || !real_of(e, eps, "eps", epsilon)) return NULL;
  if (!(*epsilon >= 0) || isinf(*epsilon)) {
    fail(e, DIAG_RANGE, "eps of %s must be 0 or a positive number, not %V", name, eps);
    return NULL;
  }
  if (x->rank < 1) fail(e, DIAG_SHAPE, "%s of a tensor without axes: it needs at least one", name);
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

// ---- positions and tables ----

/* The positions of an axis depend on its size alone, so the node takes the size rather than x. */
Value primitive_positions(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], ANY_DTYPE, "x of positions", "");
  int32_t axis = x ? own_axis(e, "positions", x, call->arguments[1]) : -1;
  return axis < 0 ? POISON : made_value(e, build_positions(build_here(e), x->dims[axis]));
}

/* The times are the axes before the last of q and k, unless an axis is given: ids have none there, and a mask over the
 * batch would be a silent mistake. True hides, as in torch's boolean masks. */
Value primitive_causal_mask(Elaborator *e, const PrimitiveCall *call) {
  static const char *const what[] = {"q of causal_mask", "k of causal_mask"};
  const Size *times[2];
  bool has_axis = call->arguments[2].kind != VALUE_NONE;
  for (int i = 0; i < 2; i++) {
    Value v = call->arguments[i].kind == VALUE_NONE ? call->arguments[0] : call->arguments[i];
    Node *x = tensor_of(e, v, ANY_DTYPE, what[i], "");
    if (x && !has_axis && x->dtype != DTYPE_F32)
      return fail(e, DIAG_ARGUMENT, "causal_mask of %K needs the axis of its positions: axis = -1, if that is the last",
                  value_tensor(x));
    int32_t axis = x ? own_axis(e, "causal_mask", x, has_axis ? call->arguments[2] : value_integer(-2)) : -1;
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

/* The base of the geometric sequence of frequencies: positive and finite, since its logarithm is taken. */
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

/* pos broadcasts against x without its last axis, but must not enlarge it: the result has the shape of x. */
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
    return fail(e, DIAG_SHAPE, "rotary of %K: the last axis must be even, known at compile time, and not the only one",
                value_tensor(x));
  }
  Shape result;
  if (!broadcast_shapes(e, "rotary", 2, (Shape[]){leading(x, 1), shape_of(pos)}, (Node *[]){x, pos}, &result))
    return POISON;
  if (result.rank + 1 != x->rank) {
    return fail(e, DIAG_SHAPE, "rotary: pos %T has more axes than x %T without its last axis", pos, x);
  }
  for (uint32_t i = 0; i < result.rank; i++) {
    if (size_equals(x->dims[i], 1) && !size_equals(result.dims[i], 1)) {
      return fail(e, DIAG_SHAPE, "rotary: pos %T has more positions than x %T", pos, x);
    }
  }
  return made_value(e, build_rotary(build_here(e), x, pos, base, !is_half));
}

/* `positions` are 0, 1, 2, ..., so whether the table has a row for each follows from the sizes alone and is checked
 * before anything is computed. Ids that are inputs are checked by the run. */
static bool has_rows_for(Elaborator *e, const Node *table, const Node *ids) {
  if (ids->op != OP_POSITIONS) return true;
  const Size *n = ids->dims[0], *n_rows = table->dims[0];
  return need(e, value_compare(e->arena, e->sizes, OP_LE, n, n_rows), DIAG_RANGE,
              "%Z positions, but the table has %Z rows: its legal range is [0, %Z)", n, n_rows, n_rows);
}

/* Rows of the ragged batch must not be selected by index: that would mix items. */
Value primitive_gather(Elaborator *e, Node *table, Value v) {
  Node *ids = tensor_of(e, v, I32, "an index", "");
  if (!ids) return POISON;
  if (table->rank < 1) return fail(e, DIAG_SHAPE, "a table that is indexed needs at least one axis");
  if (!within_items(e, "a table", 1, table->dims)) return POISON;
  if (!rank_fits(e, "the result", (int64_t)ids->rank + table->rank - 1) || !has_rows_for(e, table, ids)) return POISON;
  return made_value(e, build_gather(build_here(e), table, ids));
}

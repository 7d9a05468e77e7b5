/* Tensors: the rules that operands keep: types, axes, shapes that broadcast, items of a ragged batch.
 *
 * In: values and what messages call them. Out: nodes, axes counted from the front, common shapes. Where sizes are only
 * known at run time, agreement becomes a check of the run. Refuses what tensors.h says, each time with both shapes. */
#include "elaborate/tensors.h"

#include "base/checked_size.h"

// ---- nodes ----

/* Every node gets the origin of the expression that is being evaluated. */
Builder *build_here(Elaborator *e) {
  e->builder.origin = origin_of(e);
  return &e->builder;
}

bool rank_fits(Elaborator *e, const char *what, int64_t rank) {
  if (rank <= MAX_RANK) return true;
  fail(e, DIAG_LIMIT, "%s has %D axes; at most %d are possible", what, rank, (int)MAX_RANK);
  return false;
}

/* Refuses a constant dimension over MAX_DIMENSION, and a constant shape of more than MAX_ELEMENTS elements. Shapes
 * with run-time sizes are checked by the run, when memory is asked for. An empty tensor may have any other sizes. */
bool dims_fit(Elaborator *e, uint32_t rank, const Size *const *dims) {
  int64_t elements = 1, value;
  bool is_constant = true;
  SizeList list = {rank, (const Size **)dims};
  for (uint32_t i = 0; i < rank; i++) {
    if (!dims[i]) {
      fail(e, DIAG_LIMIT, "a size is too large to be computed");
      return false;
    }
    if (!size_is_const(dims[i], &value)) {
      is_constant = false;
      continue;
    }
    if (value > MAX_DIMENSION) {
      fail(e, DIAG_LIMIT, "the size %D in %L is larger than %D", value, &list, MAX_DIMENSION);
      return false;
    }
    if (value == 0) elements = 0;
    else if (!checked_mul(elements, value, &elements)) elements = MAX_ELEMENTS + 1;
    if (elements > MAX_ELEMENTS) elements = MAX_ELEMENTS + 1;
  }
  if (!is_constant || elements <= MAX_ELEMENTS) return true;
  fail(e, DIAG_LIMIT, "a tensor %L has more than 2^40 elements", &list);
  return false;
}

/* Counts the node. Limits are checked after building: the node is garbage then, and the graph is not used. */
Node *made(Elaborator *e, Node *node) {
  if (!node || !dims_fit(e, node->rank, node->dims)) return NULL;
  if (++e->n_operations <= MAX_OPERATIONS) return node;
  fail(e, DIAG_LIMIT, "the model has more than %d operations", (int)MAX_OPERATIONS);
  return NULL;
}

Value made_value(Elaborator *e, Node *node) { return value_tensor(made(e, node)); }

// ---- operands ----

/* "f32 or i32". */
static const char *dtypes_text(Elaborator *e, unsigned dtypes) {
  StrBuf text = strbuf_new(e->arena);
  for (int i = 0; i < N_DTYPES; i++) {
    if (!(dtypes & 1u << i)) continue;
    if (text.length) strbuf_add(&text, " or ");
    strbuf_add(&text, dtype_names[i]);
  }
  return text.text;
}

/* The cure for a tensor of another type, where there is one. Only an operation that takes a single type has it. */
static const char *conversion_to(unsigned dtypes) {
  switch (dtypes) {
    case F32: return "; convert it with f32(x)";
    case I32: return "; convert it with i32(x)";
    case BOOL: return "; compare it, as in x != 0";
    default: return "";
  }
}

/* A tuple stands for its first tensor where one is needed: `attn(x) + x` with an attention that also returns its
 * weights. */
Node *tensor_of(Elaborator *e, Value v, unsigned dtypes, const char *what, const char *name) {
  if (is_poison(v)) return NULL;
  if (v.kind == VALUE_TUPLE) v = value_tensor(v.as.tuple->items[0]);
  if (is_poison(v)) return NULL;
  if (v.kind != VALUE_TENSOR) {
    fail(e, DIAG_KIND, "%s%s must be a tensor, not %K", what, name, v);
    return NULL;
  }
  if (dtypes && !(dtypes & 1u << v.as.tensor->dtype)) {
    fail(e, DIAG_DTYPE, "%s%s must be %s, not %s%s", what, name, dtypes_text(e, dtypes),
         dtype_names[v.as.tensor->dtype], conversion_to(dtypes));
    return NULL;
  }
  return v.as.tensor;
}

/* A number or run-time size as a tensor of the other operand's type. An i32 takes exact integers only; f32 rounds. A
 * size of the ragged batch is refused, because items must not know how many they are. */
static Node *scalar(Elaborator *e, Value v, DType dtype) {
  if (v.kind == VALUE_SIZE && !within_items(e, "this number", 1, &v.as.size)) return NULL;
  bool fits = dtype == DTYPE_F32   ? is_number(v) || v.kind == VALUE_SIZE
              : dtype == DTYPE_I32 ? is_size(v) || v.kind == VALUE_NUMBER
                                   : false;
  if (!fits) {
    fail(e, DIAG_KIND, "%K cannot be combined with a tensor of type %s", v, dtype_names[dtype]);
    return NULL;
  }
  if (dtype == DTYPE_I32 &&
      (v.kind == VALUE_NUMBER || (v.kind == VALUE_INTEGER && v.as.integer != (int32_t)v.as.integer))) {
    fail(e, DIAG_DTYPE, "%V does not fit in i32, the type of the other operand%s", v,
         v.kind == VALUE_NUMBER ? "; f32(x) makes that one f32" : "");
    return NULL;
  }
  Builder *b = build_here(e);
  if (v.kind == VALUE_SIZE) return made(e, build_size(b, dtype, v.as.size));
  if (dtype == DTYPE_I32) return made(e, build_scalar(b, dtype, 0, v.as.integer));
  return made(e, build_scalar(b, dtype, number_of(v), 0));
}

/* The dtype that the tensors among the operands share, f32 if there is none; false after an error. */
static bool common_dtype(Elaborator *e, const char *what, uint32_t n, const Value *values, unsigned dtypes,
                         DType *dtype) {
  bool found = false;
  *dtype = DTYPE_F32;
  for (uint32_t i = 0; i < n; i++) {
    if (!is_tensor(values[i])) continue;
    Node *x = tensor_of(e, values[i], ANY_DTYPE, what, "");
    if (!x) return false;
    if (!(dtypes & 1u << x->dtype)) {
      fail(e, DIAG_DTYPE, "%s of a tensor of type %s: it takes %s", what, dtype_names[x->dtype],
           dtypes_text(e, dtypes));
      return false;
    }
    if (found && x->dtype != *dtype) {
      fail(e, DIAG_DTYPE, "%s of %s and %s tensors: convert one with f32(x) or i32(x)", what, dtype_names[*dtype],
           dtype_names[x->dtype]);
      return false;
    }
    *dtype = x->dtype;
    found = true;
  }
  return true;
}

/* Poison is looked for first: with it, no message about the others can be trusted. */
bool operands_of(Elaborator *e, const char *what, uint32_t n, const Value *values, unsigned dtypes, Node **nodes) {
  DType dtype;
  for (uint32_t i = 0; i < n; i++) {
    if (is_poison(values[i])) return false;
  }
  if (!common_dtype(e, what, n, values, dtypes, &dtype)) return false;
  for (uint32_t i = 0; i < n; i++) {
    nodes[i] = is_tensor(values[i]) ? tensor_of(e, values[i], ANY_DTYPE, what, "") : scalar(e, values[i], dtype);
    if (!nodes[i]) return false;
  }
  return true;
}

/* A quotient that comes out even is a double all the same; without the word nobody would guess what is wrong. */
static const char double_cure[] = "'/' gives a double, '//' and i32(x) give integers";

Value fail_no_size(Elaborator *e, SrcSpan span, const char *what, Value v) {
  if (v.kind == VALUE_NUMBER) {
    return fail_at(e, span, DIAG_KIND, "%s must be an integer or a run-time size, not the double %V: %s", what, v,
                   double_cure);
  }
  return fail_at(e, span, DIAG_KIND, "%s must be an integer or a run-time size, not %K", what, v);
}

/* A run-time size has a message of its own, since it looks like a number to the user. */
bool integer_of(Elaborator *e, Value v, const char *what, int64_t *integer) {
  *integer = v.kind == VALUE_INTEGER ? v.as.integer : 0;
  if (v.kind == VALUE_INTEGER) return true;
  if (v.kind == VALUE_SIZE)
    fail(e, DIAG_KIND, "%s must be an integer known at compile time, not the run-time size %V", what, v);
  else if (v.kind == VALUE_NUMBER)
    fail(e, DIAG_KIND, "%s must be an integer known at compile time, not the double %V: %s", what, v, double_cure);
  else if (!is_poison(v)) fail(e, DIAG_KIND, "%s must be an integer known at compile time, not %K", what, v);
  return false;
}

bool real_of(Elaborator *e, Value v, const char *what, double *number) {
  if (is_number(v)) *number = number_of(v);
  else if (!is_poison(v)) fail(e, DIAG_KIND, "%s must be a number, not %K", what, v);
  return is_number(v);
}

/* An axis counted from the front; negative ones count from the end. */
int32_t axis_of(Elaborator *e, Value axis, uint32_t rank) {
  int64_t value;
  if (!integer_of(e, axis, "axis", &value)) return -1;
  if (value < -(int64_t)rank || value >= (int64_t)rank) {
    if (rank == 0) fail(e, DIAG_RANGE, "axis %D of a tensor of rank 0, which has no axes", value);
    else fail(e, DIAG_RANGE, "axis %D of a tensor of rank %d: it must lie in -%d to %d", value, (int)rank, (int)rank,
              (int)rank - 1);
    return -1;
  }
  return (int32_t)(value < 0 ? value + rank : value);
}

int32_t own_axis(Elaborator *e, const char *what, const Node *x, Value axis) {
  int32_t i = axis_of(e, axis, x->rank);
  return i < 0 || !within_items(e, what, 1, &x->dims[i]) ? -1 : i;
}

// ---- shapes ----

Shape leading(const Node *node, uint32_t n) {
  Shape shape = {.rank = node->rank - n};
  for (uint32_t i = 0; i < shape.rank; i++) shape.dims[i] = node->dims[i];
  return shape;
}

Shape shape_of(const Node *node) { return leading(node, 0); }

bool involves_items(const Elaborator *e, const Size *dim) {
  return e->graph->ragged_batch >= 0 && size_involves(dim, (uint32_t)e->graph->ragged_batch);
}

/* Fails if one of the dimensions involves the batch of a ragged model; `what` is the operation that would mix its
 * items. */
bool within_items(Elaborator *e, const char *what, uint32_t n, const Size *const *dims) {
  for (uint32_t i = 0; i < n; i++) {
    if (!involves_items(e, dims[i])) continue;
    fail(e, DIAG_RAGGED, "%s mixes the items of '%s': they have ragged sizes, so each is computed alone", what,
         e->sizes->symbols[e->graph->ragged_batch]);
    return false;
  }
  return true;
}

/* Merges one size into the common one. Only a 1 that is known when compiling broadcasts: a run-time size that happens
 * to be 1 must not change the shape of the graph. */
static bool merge(Elaborator *e, const char *what, uint32_t n, Node *const *nodes, const Size **dim,
                  const Size *other) {
  if (size_equals(other, 1)) return true;
  if (!size_equals(*dim, 1) && *dim != other) {
    if (!need_same(e, *dim, other, "%s: the shapes do not agree: %J", what, n, nodes)) return false;
    if (size_is_const(*dim, NULL)) return true;
  }
  *dim = other;
  return true;
}

/* Axes are aligned at the right, as in NumPy. Two axes of the ragged batch in one result would pair every item with
 * every other. */
bool broadcast_shapes(Elaborator *e, const char *what, uint32_t n, const Shape *shapes, Node *const *nodes,
                      Shape *result) {
  uint32_t n_items = 0;
  result->rank = 0;
  for (uint32_t k = 0; k < n; k++) result->rank = shapes[k].rank > result->rank ? shapes[k].rank : result->rank;
  for (uint32_t i = 1; i <= result->rank; i++) {
    const Size *dim = size_const(e->sizes, 1);
    for (uint32_t k = 0; k < n; k++) {
      if (i > shapes[k].rank) continue;
      if (!merge(e, what, n, nodes, &dim, shapes[k].dims[shapes[k].rank - i])) return false;
    }
    result->dims[result->rank - i] = dim;
    n_items += involves_items(e, dim);
  }
  return n_items < 2 || within_items(e, what, result->rank, result->dims);
}

const Size *product_of(Elaborator *e, uint32_t n, const Size *const *dims) {
  const Size *product = sizes_product(e->sizes, n, dims);
  if (!product) fail(e, DIAG_LIMIT, "a product of sizes is too large to be computed");
  return product;
}

Node *with_known_dims(Elaborator *e, Node *node, uint32_t rank, const Size *const *dims) {
  const Size *known[MAX_RANK];
  bool differs = false;
  for (uint32_t i = 0; node && i < node->rank; i++) {
    bool is_number = i < rank && size_is_const(dims[i], NULL);
    known[i] = is_number ? dims[i] : node->dims[i];
    differs |= known[i] != node->dims[i];
  }
  return differs ? made(e, build_reshape(build_here(e), node, node->rank, known)) : node;
}

/* Sizes that broadcasting has found equal to numbers are numbers from here on, so kernels can be specialised. */
Value elementwise(Elaborator *e, const char *what, OpKind op, uint32_t n, Node *const *xs) {
  Shape shapes[3] = {0}, result;
  for (uint32_t i = 0; i < n; i++) shapes[i] = shape_of(xs[i]);
  if (!broadcast_shapes(e, what, n, shapes, xs, &result)) return POISON;
  Builder *b = build_here(e);
  Node *node = made(e, n == 1   ? build_unary(b, op, xs[0])
                       : n == 2 ? build_binary(b, op, xs[0], xs[1])
                                : build_where(b, xs[0], xs[1], xs[2]));
  return value_tensor(with_known_dims(e, node, result.rank, result.dims));
}

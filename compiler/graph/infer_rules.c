/* The shape rules of the operations that the language has, one function each, and what all shape rules need.
 *
 * In: a node. Out: the shape of its result, or what is wrong with it; the types are those of ops.def. See infer.h.
 *
 * A rule refuses only what is certainly wrong. Where polynomials might agree in some run the rule passes, the
 * elaborator adds a check, and the interpreter applies the same rule to the actual numbers. */
#include "graph/infer.h"

#include <string.h>

// ---- types as values ----

NodeType type_of(const Node *node) {
  NodeType type = {.dtype = node->dtype, .rank = node->rank};
  memcpy(type.dims, node->dims, sizeof type.dims);
  return type;
}

void type_print(StrBuf *out, const SizeTable *sizes, const NodeType *type) {
  strbuf_printf(out, "%s[", dtype_names[type->dtype]);
  for (uint32_t i = 0; i < type->rank; i++) {
    if (i) strbuf_add(out, ", ");
    size_print(out, sizes, type->dims[i]);
  }
  strbuf_add_char(out, ']');
}

void node_print_shape(StrBuf *out, const SizeTable *table, const Node *node) {
  NodeType type = type_of(node);
  type_print(out, table, &type);
}

const char *infer_fault(const Infer *in, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(in->sizes->arena, format, args);
  va_end(args);
  return text;
}

static const Node *input(const Infer *in, uint32_t i) { return in->node->inputs.items[i]; }

/* "f32[batch, 8] and f32[7]" of the first two inputs, or the type of the only one. */
static const char *shapes(const Infer *in) {
  StrBuf out = strbuf_new(in->sizes->arena);
  for (size_t i = 0; i < in->node->inputs.n; i++) {
    strbuf_add(&out, i ? " and " : "");
    node_print_shape(&out, in->sizes, in->node->inputs.items[i]);
  }
  return out.text;
}

// ---- sizes ----

/* The size that two axes agree on: the first that is no constant; NULL if they differ by a constant. */
static const Size *agree(SizeTable *sizes, const Size *a, const Size *b) {
  if (!size_may_equal(sizes, a, b)) return NULL;
  return size_is_const(a, NULL) ? b : a;
}

/* Only a constant 1 broadcasts; a run-time size that happens to be 1 must equal the other one. */
bool infer_broadcast(SizeTable *sizes, NodeType *into, uint32_t rank, const Size *const *dims) {
  if (rank > MAX_RANK) return false;
  if (rank > into->rank) {
    uint32_t added = rank - into->rank;
    memmove(into->dims + added, into->dims, into->rank * sizeof *into->dims);
    memcpy(into->dims, dims, added * sizeof *dims);
    into->rank = rank;
  }
  for (uint32_t i = 1; i <= rank; i++) {
    const Size **own = &into->dims[into->rank - i], *other = dims[rank - i];
    if (size_equals(other, 1)) continue;
    *own = size_equals(*own, 1) ? other : agree(sizes, *own, other);
    if (!*own) return false;
  }
  return true;
}

bool infer_broadcasts_to(SizeTable *sizes, uint32_t rank, const Size *const *dims, const NodeType *domain) {
  if (rank > domain->rank) return false;
  for (uint32_t i = 1; i <= rank; i++) {
    const Size *dim = dims[rank - i];
    if (!size_equals(dim, 1) && !size_may_equal(sizes, dim, domain->dims[domain->rank - i])) return false;
  }
  return true;
}

bool infer_same_type(SizeTable *sizes, const NodeType *a, const NodeType *b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  for (uint32_t i = 0; i < a->rank; i++) {
    if (!size_may_equal(sizes, a->dims[i], b->dims[i])) return false;
  }
  return true;
}

// ---- pointwise operations ----

/* Operands broadcast; the type is the table's. */
const char *infer_elementwise(const Infer *in) {
  DType args[3];
  NodeType type = {0};
  for (uint32_t i = 0; i < in->node->inputs.n; i++) {
    const Node *x = input(in, i);
    args[i] = x->dtype;
    if (!infer_broadcast(in->sizes, &type, x->rank, (const Size *const *)x->dims)) {
      return infer_fault(in, "the shapes do not agree: %s", shapes(in));
    }
  }
  const char *fault = op_pointwise_type(in->node->op, args, &type.dtype);
  if (fault) return infer_fault(in, "%s: %s", fault, shapes(in));
  *in->type = type;
  return NULL;
}

// ---- sources ----

static bool negative(const Size *size) {
  int64_t value;
  return size_is_const(size, &value) && value < 0;
}

/* Sources say their own type; it must be one that the operation can have. */
const char *infer_source(const Infer *in) {
  const Node *node = in->node;
  for (uint32_t i = 0; i < node->rank; i++) {
    if (!node->dims[i] || negative(node->dims[i])) return infer_fault(in, "axis %u has no size or a negative one", i);
  }
  if ((node->op == OP_INPUT || node->op == OP_WEIGHT) && !node->attr.name) return "it has no name";
  if (node->op == OP_WEIGHT && node->dtype != DTYPE_F32) return "a weight is f32";
  if (node->op == OP_SIZE && !node->attr.size) return "it has no size";
  if (node->op == OP_SIZE && (node->rank || node->dtype == DTYPE_BOOL)) return "a size is an f32 or i32 scalar";
  if (node->op == OP_POSITIONS && (node->rank != 1 || node->dtype != DTYPE_I32)) return "positions are i32 of one axis";
  if (node->op == OP_CAUSAL_MASK && (node->rank != 2 || node->dtype != DTYPE_BOOL)) return "the mask is bool [q, k]";
  if (node->op == OP_FULL && node->dtype == DTYPE_I32 && node->attr.integer != (int32_t)node->attr.integer) {
    return "the number does not fit an i32";
  }
  for (uint32_t i = 0; i < node->rank && node->op == OP_WEIGHT; i++) {
    if (!size_is_const(node->dims[i], NULL)) return "the shape of a weight depends on run-time sizes";
  }
  return NULL;
}

const char *infer_same(const Infer *in) {
  *in->type = type_of(input(in, 0));
  return NULL;
}

// ---- views ----

/* Start, dim and what is left behind must not be negative as far as that is known now. */
const char *infer_slice(const Infer *in) {
  const Node *node = in->node, *x = input(in, 0);
  if (node->rank != x->rank) return infer_fault(in, "a slice keeps the axes of %s", shapes(in));
  for (uint32_t i = 0; i < x->rank; i++) {
    const Size *start = node->attr.starts[i], *dim = node->dims[i];
    if (!start || !dim) return infer_fault(in, "axis %u has no start or size", i);
    const Size *end = size_add(in->sizes, start, dim);
    const Size *left = end ? size_sub(in->sizes, x->dims[i], end) : NULL;
    if (negative(start) || negative(dim) || (left && negative(left))) {
      return infer_fault(in, "the slice is not within axis %u of %s", i, shapes(in));
    }
  }
  return NULL;
}

/* A product that overflows as a polynomial is left to the run. */
const char *infer_reshape(const Infer *in) {
  for (uint32_t i = 0; i < in->node->rank; i++) {
    if (!in->node->dims[i] || negative(in->node->dims[i])) return infer_fault(in, "axis %u has a negative size", i);
  }
  const Size *have = node_elements(in->sizes, input(in, 0)), *want = node_elements(in->sizes, in->node);
  if (have && want && !size_may_equal(in->sizes, have, want)) {
    return infer_fault(in, "%s has another number of elements", shapes(in));
  }
  return NULL;
}

/* Each axis exactly once. */
const char *infer_permute(const Infer *in) {
  const Node *x = input(in, 0);
  bool seen[MAX_RANK] = {false};
  in->type->rank = x->rank;
  for (uint32_t i = 0; i < x->rank; i++) {
    uint8_t axis = in->node->attr.axes[i];
    bool is_new = axis < x->rank && !seen[axis];
    if (!is_new) return infer_fault(in, "the axes are not a permutation of those of %s", shapes(in));
    seen[axis] = true;
    in->type->dims[i] = x->dims[axis];
  }
  return NULL;
}

/* Whether the attribute names one of so many axes. */
static bool is_axis(const Infer *in, uint32_t rank) {
  return in->node->attr.axis >= 0 && (uint32_t)in->node->attr.axis < rank;
}

/* The sizes along the axis add up; those along the others must agree. */
const char *infer_concat(const Infer *in) {
  uint32_t axis = (uint32_t)in->node->attr.axis;
  NodeType type = type_of(input(in, 0));
  if (!is_axis(in, type.rank)) return infer_fault(in, "%s has no axis %d", shapes(in), in->node->attr.axis);
  for (uint32_t i = 1; i < in->node->inputs.n; i++) {
    const Node *x = input(in, i);
    bool fits = x->rank == type.rank && x->dtype == type.dtype;
    for (uint32_t j = 0; j < type.rank && fits; j++) {
      const Size *so_far = type.dims[j];
      type.dims[j] = j == axis ? size_add(in->sizes, so_far, x->dims[j]) : agree(in->sizes, so_far, x->dims[j]);
      fits = type.dims[j] != NULL;
    }
    if (!fits) return infer_fault(in, "types or shapes do not agree: %s", shapes(in));
  }
  *in->type = type;
  return NULL;
}

// ---- gather, reductions, norms, positions ----

/* [axes of the ids, axes of the table but its rows]. */
const char *infer_gather(const Infer *in) {
  const Node *table = input(in, 0), *ids = input(in, 1);
  if (ids->dtype != DTYPE_I32 || !table->rank) {
    return infer_fault(in, "it needs a table and i32 ids, not %s", shapes(in));
  }
  if (ids->rank + table->rank - 1 > MAX_RANK) return infer_fault(in, "the result has more than %d axes", MAX_RANK);
  NodeType *type = in->type;
  type->rank = ids->rank + table->rank - 1u;
  memcpy(type->dims, ids->dims, ids->rank * sizeof *type->dims);
  memcpy(type->dims + ids->rank, table->dims + 1, (table->rank - 1u) * sizeof *type->dims);
  return NULL;
}

/* softmax and log_softmax keep the shape; the others lose the axis or make it 1. */
const char *infer_reduction(const Infer *in, OpKind reduction, const NodeType *of) {
  if (!is_axis(in, of->rank)) return infer_fault(in, "axis %d of a tensor of rank %u", in->node->attr.axis, of->rank);
  NodeType type = *of;
  bool keeps_shape = reduction == OP_SOFTMAX || reduction == OP_LOG_SOFTMAX;
  uint32_t axis = (uint32_t)in->node->attr.axis;
  type.dtype = op_gives(reduction, of->dtype, of->dtype);
  if (reduction == OP_ARGMAX && in->node->attr.keepdim) return "argmax has no keepdim";
  if (!keeps_shape && in->node->attr.keepdim) type.dims[axis] = size_const(in->sizes, 1);
  if (!keeps_shape && !in->node->attr.keepdim) {
    type.rank--;
    memmove(type.dims + axis, type.dims + axis + 1, (type.rank - axis) * sizeof *type.dims);
  }
  *in->type = type;
  return NULL;
}

const char *infer_reduce(const Infer *in) {
  NodeType of = type_of(input(in, 0));
  return infer_reduction(in, in->node->op, &of);
}

/* Weight and bias are inputs `first` and on, each as long as the last axis. */
const char *infer_norm_weights(const Infer *in, OpKind norm, uint32_t first) {
  const NodeAttr *attr = &in->node->attr;
  if (norm == OP_RMS_NORM && attr->has_bias) return "rms_norm has no bias";
  if (!in->type->rank) return infer_fault(in, "%s of a tensor without axes", op_table[norm].name);
  if (in->node->inputs.n != first + attr->has_weight + attr->has_bias) {
    return infer_fault(in, "%zu inputs do not fit weight and bias", in->node->inputs.n);
  }
  for (uint32_t i = first; i < in->node->inputs.n; i++) {
    const Node *w = input(in, i);
    bool fits = w->rank == 1 && w->dtype == DTYPE_F32;
    if (!fits || !size_may_equal(in->sizes, w->dims[0], in->type->dims[in->type->rank - 1])) {
      return infer_fault(in, "weight or bias do not fit the last axis: %s", shapes(in));
    }
  }
  return NULL;
}

const char *infer_norm(const Infer *in) {
  *in->type = type_of(input(in, 0));
  return infer_norm_weights(in, in->node->op, 1);
}

/* One axis is added behind the positions, or two for the table of rotary; only the width is the node's own word. */
const char *infer_sinusoid(const Infer *in) {
  const Node *pos = input(in, 0), *node = in->node;
  bool table = node->op == OP_ROTARY_TABLE;
  uint32_t rank = pos->rank + (table ? 2u : 1u);
  const Size *width = node->rank == rank && rank <= MAX_RANK ? node->dims[rank - 1] : NULL;
  if (!width || !size_is_const(width, NULL) || negative(width)) {
    return infer_fault(in, "it adds %s to %s", table ? "two axes" : "an axis", shapes(in));
  }
  *in->type = (NodeType){.rank = rank};
  memcpy(in->type->dims, pos->dims, pos->rank * sizeof *pos->dims);
  if (table) in->type->dims[pos->rank] = size_const(in->sizes, 2);
  in->type->dims[rank - 1] = width;
  return NULL;
}

/* The positions broadcast to all axes but the last, whose width must be even because it is rotated in pairs. */
const char *infer_rotary(const Infer *in) {
  const Node *x = input(in, 0), *pos = input(in, 1);
  int64_t width;
  if (pos->dtype == DTYPE_BOOL || x->rank < 2) {
    return infer_fault(in, "it needs [..., time, width] and positions, not %s", shapes(in));
  }
  if (!size_is_const(x->dims[x->rank - 1], &width) || width % 2) return "the last axis must be even";
  *in->type = type_of(x);
  NodeType rows = *in->type;
  rows.rank--;
  if (!infer_broadcasts_to(in->sizes, pos->rank, (const Size *const *)pos->dims, &rows)) {
    return infer_fault(in, "the positions do not fit: %s", shapes(in));
  }
  return NULL;
}

// ---- along an axis ----

/* NULL: the first operand has the axis. */
static const char *axis_fault(const Infer *in) {
  if (is_axis(in, input(in, 0)->rank)) return NULL;
  return infer_fault(in, "axis %d of a tensor of rank %u", in->node->attr.axis, input(in, 0)->rank);
}

/* The other axes broadcast; along the axis there are as many elements as ids. */
const char *infer_take(const Infer *in) {
  const Node *x = input(in, 0), *ids = input(in, 1);
  const char *fault = axis_fault(in);
  if (fault) return fault;
  if (ids->dtype != DTYPE_I32 || ids->rank != x->rank) return "it needs i32 ids with as many axes as x";
  NodeType rest = type_of(x), other = type_of(ids);
  uint32_t axis = (uint32_t)in->node->attr.axis;
  rest.dims[axis] = other.dims[axis] = size_const(in->sizes, 1);
  if (!infer_broadcast(in->sizes, &rest, other.rank, other.dims)) return "the shapes of x and of the ids do not agree";
  rest.dims[axis] = ids->dims[axis];
  *in->type = rest;
  return NULL;
}

/* The dim is the node's own word; the last element, (dim - 1) step, must lie within x. */
const char *infer_every(const Infer *in) {
  const Node *x = input(in, 0), *node = in->node;
  int64_t step;
  const char *fault = axis_fault(in);
  if (fault) return fault;
  if (!node->attr.size || !size_is_const(node->attr.size, &step) || step < 1) return "the step must be 1 or more";
  if (node->rank != x->rank || !node->dims[node->attr.axis]) return "it keeps the axes of x";
  const Size *dim = node->dims[node->attr.axis], *one = size_const(in->sizes, 1);
  const Size *before = size_sub(in->sizes, dim, one);
  const Size *last = before ? size_mul(in->sizes, before, node->attr.size) : NULL;
  const Size *left = last ? size_sub(in->sizes, x->dims[node->attr.axis], last) : NULL;
  bool reaches_out = left && !size_equals(dim, 0) && negative(size_sub(in->sizes, left, one));
  if (negative(dim) || reaches_out) return "the steps lead out of the axis";
  *in->type = type_of(x);
  in->type->dims[node->attr.axis] = dim;
  return NULL;
}

const char *infer_cumsum(const Infer *in) {
  *in->type = type_of(input(in, 0));
  return axis_fault(in);
}

const char *infer_shift(const Infer *in) {
  const Size *n = in->node->attr.size;
  if (!n || !size_is_const(n, NULL)) return "it shifts by a number that is known when compiling";
  *in->type = type_of(input(in, 0));
  return axis_fault(in);
}

const char *infer_places(const Infer *in) {
  *in->type = type_of(input(in, 0));
  in->type->dtype = DTYPE_I32;
  return axis_fault(in);
}

/* How many are wanted is the node's own word. */
const char *infer_topk(const Infer *in) {
  const Node *x = input(in, 0), *node = in->node;
  int64_t k, n;
  const char *fault = axis_fault(in);
  if (fault) return fault;
  uint32_t axis = (uint32_t)node->attr.axis;
  bool fits = node->rank == x->rank && node->dims[axis] && size_is_const(node->dims[axis], &k) && k >= 1;
  if (!fits || (size_is_const(x->dims[axis], &n) && n < k)) return "it takes 1 to all elements of the axis";
  *in->type = type_of(x);
  in->type->dtype = DTYPE_I32;
  in->type->dims[axis] = node->dims[axis];
  return NULL;
}

/* How many rows the result has is the node's own word. */
const char *infer_scatter(const Infer *in) {
  const Node *x = input(in, 0), *ids = input(in, 1), *node = in->node;
  if (x->rank != 2 || ids->dtype != DTYPE_I32 || ids->rank != 1 || ids->dims[0] != x->dims[0])
    return "it needs rows [t, d] and i32 ids [t]";
  if (node->rank != 2 || !node->dims[0] || node->dims[1] != x->dims[1]) return "the result has rows like those of x";
  *in->type = type_of(x);
  in->type->dims[0] = node->dims[0];
  if (node->inputs.n == 2) return NULL;
  const Node *sums = input(in, 2);
  bool is_alike = sums->dtype == DTYPE_F32 && sums->rank == 2 && sums->dims[0] == node->dims[0];
  return is_alike && sums->dims[1] == node->dims[1] ? NULL : "the sums have the shape of the result";
}

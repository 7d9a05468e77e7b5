/* The shape rules of operations that select or add up along one axis: take, every, cumsum, topk.
 *
 * In: a node. Out: the shape of its result, or what is wrong with it. See infer.h; as there, only what is certainly
 * wrong is refused, and the interpreter applies the same rules to the actual numbers. */
#include <string.h>

#include "graph/infer.h"

static const Node *input(const Infer *in, uint32_t i) { return in->node->inputs.items[i]; }

/* The axis of the first operand; NULL, and then there is such an axis, or the fault. */
static const char *axis_fault(const Infer *in) {
  int32_t axis = in->node->attr.axis;
  if (axis >= 0 && axis < input(in, 0)->rank) return NULL;
  return infer_fault(in, "axis %d of a tensor of rank %u", axis, input(in, 0)->rank);
}

static bool is_negative(const Size *size) {
  int64_t value;
  return size_is_const(size, &value) && value < 0;
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
  bool reaches_out = left && !size_equals(dim, 0) && is_negative(size_sub(in->sizes, left, one));
  if (is_negative(dim) || reaches_out) return "the steps lead out of the axis";
  *in->type = type_of(x);
  in->type->dims[node->attr.axis] = dim;
  return NULL;
}

const char *infer_cumsum(const Infer *in) {
  *in->type = type_of(input(in, 0));
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

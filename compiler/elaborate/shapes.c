/* Primitives that put the same elements into another shape, and those that ask a tensor about its shape.
 *
 * In: tensors, axes, lists of sizes. Out: nodes; for questions, sizes and numbers. Refuses shapes whose sizes do not
 * agree or cannot be shown to, negative sizes, and anything that would mix the items of a ragged batch. */
#include "elaborate/lists.h"
#include "elaborate/primitives.h"
#include "elaborate/tensors.h"

// ---- concat, stack ----

/* The tensors that are to be joined, all of one dtype and rank. NULL after an error. */
static Node **joined(Elaborator *e, const char *name, uint32_t n, const Value *values) {
  Node **xs = ARENA_ARRAY(e->arena, Node *, n);
  if (n == 0) fail(e, DIAG_ARGUMENT, "%s needs at least one tensor", name);
  for (uint32_t i = 0; i < n; i++) {
    xs[i] = tensor_of(e, values[i], ANY_DTYPE, "an argument of ", name);
    if (!xs[i]) return NULL;
    if (xs[i]->dtype == xs[0]->dtype && xs[i]->rank == xs[0]->rank) continue;
    fail(e, xs[i]->dtype != xs[0]->dtype ? DIAG_DTYPE : DIAG_SHAPE, "%s of %K and %K: type and rank must be the same",
         name, value_tensor(xs[0]), value_tensor(xs[i]));
    return NULL;
  }
  return n ? xs : NULL;
}

/* Checks that all axes but `axis` (-1: none excepted) have the same sizes, and puts these into dims; a number wins
 * over a run-time size that must equal it. */
static bool agree(Elaborator *e, const char *name, uint32_t n, Node *const *xs, int32_t axis, const Size **dims) {
  for (uint32_t i = 0; i < xs[0]->rank; i++) {
    const Size *dim = xs[0]->dims[i];
    for (uint32_t k = 1; k < n && (int32_t)i != axis; k++) {
      const Size *other = xs[k]->dims[i];
      if (!need_same(e, dim, other, "%s: the shapes do not agree: %T and %T", name, xs[0], xs[k])) return false;
      if (!size_is_const(dim, NULL)) dim = other;
    }
    dims[i] = dim;
  }
  return true;
}

/* The tensors of a call: its arguments by position, or the elements of the one list that it was given. */
static const Value *tensors_given(const PrimitiveCall *call, uint32_t *n) {
  bool is_list = call->n_rest == 1 && call->rest[0].kind == VALUE_LIST;
  *n = is_list ? call->rest[0].as.list->n : call->n_rest;
  return is_list ? call->rest[0].as.list->items : call->rest;
}

/* The axis of items of a ragged batch cannot be joined. A single tensor is returned as it is. */
Value primitive_concat(Elaborator *e, const PrimitiveCall *call) {
  uint32_t n;
  const Value *values = tensors_given(call, &n);
  Node **xs = joined(e, "concat", n, values);
  int32_t axis = xs ? axis_of(e, call->arguments[0], xs[0]->rank) : -1;
  if (axis < 0) return POISON;
  const Size *total = size_const(e->sizes, 0);
  for (uint32_t i = 0; i < n && total; i++) {
    if (!within_items(e, "concat", 1, &xs[i]->dims[axis])) return POISON;
    total = size_add(e->sizes, total, xs[i]->dims[axis]);
  }
  if (!total) return fail(e, DIAG_LIMIT, "the sum of the sizes is too large to be computed");
  const Size *dims[MAX_RANK];
  if (!agree(e, "concat", n, xs, axis, dims)) return POISON;
  if (n == 1) return value_tensor(xs[0]);
  dims[axis] = total;
  Node *node = made(e, build_concat(build_here(e), n, xs, axis));
  return value_tensor(with_known_dims(e, node, xs[0]->rank, dims));
}

/* x with a new axis of size 1 at `axis`. */
static Node *with_axis(Elaborator *e, Node *x, int32_t axis) {
  const Size *dims[MAX_RANK];
  for (int32_t i = 0; i <= x->rank; i++) {
    dims[i] = i < axis ? x->dims[i] : i == axis ? size_const(e->sizes, 1) : x->dims[i - 1];
  }
  return made(e, build_reshape(build_here(e), x, x->rank + 1u, dims));
}

/* Stacking is a concat of tensors that have got the new axis. */
Node *stack_tensors(Elaborator *e, const char *name, uint32_t n, const Value *values, Value axis_value) {
  Node **xs = joined(e, name, n, values);
  if (!xs || !rank_fits(e, "the result", xs[0]->rank + 1)) return NULL;
  int32_t axis = axis_of(e, axis_value, xs[0]->rank + 1u);
  const Size *dims[MAX_RANK];
  if (axis < 0 || !agree(e, name, n, xs, -1, dims)) return NULL;
  for (uint32_t i = 0; i < n; i++) {
    xs[i] = with_known_dims(e, xs[i], xs[i]->rank, dims);
    xs[i] = xs[i] ? with_axis(e, xs[i], axis) : NULL;
    if (!xs[i]) return NULL;
  }
  return n == 1 ? xs[0] : made(e, build_concat(build_here(e), n, xs, axis));
}

Value primitive_stack(Elaborator *e, const PrimitiveCall *call) {
  uint32_t n;
  const Value *values = tensors_given(call, &n);
  return value_tensor(stack_tensors(e, "stack", n, values, call->arguments[0]));
}

// ---- reshape, transpose, heads ----

/* A list of sizes, -1 perhaps among them. NULL after an error. */
static const SizeList *listed_sizes(Elaborator *e, Value v) {
  if (v.kind == VALUE_LIST) return sizes_of_list(e, v.as.list);
  if (!is_poison(v)) fail(e, DIAG_KIND, "the shape must be a list of sizes such as [batch, 8], not %K", v);
  return NULL;
}

/* The sizes of a shape, none negative, now or as a check of the run. NULL after an error, also if `list` is NULL. */
static const SizeList *shape_of_list(Elaborator *e, const SizeList *list) {
  if (!list) return NULL;
  const Size *zero = size_const(e->sizes, 0);
  for (uint32_t i = 0; i < list->n; i++) {
    Value holds = value_compare(e->arena, e->sizes, OP_GE, list->items[i], zero);
    if (!need(e, holds, DIAG_RANGE, "the shape: negative size in %L; sizes are 0 or greater", list)) return NULL;
  }
  return rank_fits(e, "the shape", list->n) && dims_fit(e, list->n, list->items) ? list : NULL;
}

/* An axis of items of a ragged batch must remain what it is: as many items, each after as many elements. Walks both
 * shapes at once and multiplies what lies before each such axis; the products must be equal at each. Otherwise a
 * reshape would move elements from one item to another. */
static bool keeps_items(Elaborator *e, const Node *x, const SizeList *list) {
  const Size *before[2] = {size_const(e->sizes, 1), size_const(e->sizes, 1)};
  uint32_t at[2] = {0, 0}, n[2] = {x->rank, list->n};
  const Size *const *dims[2] = {x->dims, list->items};
  for (;;) {
    for (int side = 0; side < 2; side++) {
      while (at[side] < n[side] && before[side] && !involves_items(e, dims[side][at[side]])) {
        before[side] = size_mul(e->sizes, before[side], dims[side][at[side]++]);
      }
      if (!before[side]) return true; /* too large: said elsewhere */
    }
    bool ends[2] = {at[0] == n[0], at[1] == n[1]};
    if (ends[0] && ends[1]) return true;
    if (ends[0] || ends[1] || before[0] != before[1] || dims[0][at[0]] != dims[1][at[1]]) break;
    for (int side = 0; side < 2; side++) before[side] = size_mul(e->sizes, before[side], dims[side][at[side]++]);
  }
  return within_items(e, "reshape", x->rank, x->dims) && within_items(e, "reshape", list->n, list->items);
}

/* The list with the size for which -1 stands: what the elements of x leave for it. NULL after an error. */
static const SizeList *completed(Elaborator *e, const Node *x, const SizeList *list) {
  uint32_t n_open = 0, open = 0;
  const Size **others = ARENA_ARRAY(e->arena, const Size *, list->n + 1u);
  for (uint32_t i = 0; i < list->n; i++) {
    bool is_open = size_equals(list->items[i], -1);
    if (is_open) open = i, n_open++;
    others[i] = is_open ? size_const(e->sizes, 1) : list->items[i];
  }
  if (n_open == 0) return list;
  if (n_open > 1) {
    fail(e, DIAG_SHAPE, "reshape: -1 may stand for one size only, not for %d", (int)n_open);
    return NULL;
  }
  const Size *have = product_of(e, x->rank, x->dims), *known = have ? product_of(e, list->n, others) : NULL;
  if (!known) return NULL;
  others[open] = size_div(e->sizes, have, known);
  if (!others[open]) {
    fail(e, DIAG_SHAPE, "reshape: %T does not come out even in %L: -1 would be (%Z) / (%Z)", x, list, have, known);
    return NULL;
  }
  SizeList *full = ARENA_NEW(e->arena, SizeList);
  *full = (SizeList){list->n, others};
  return full;
}

/* The numbers of elements must be equal as polynomials or in every run. */
Value primitive_reshape(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], ANY_DTYPE, "x of reshape", "");
  const SizeList *list = x ? listed_sizes(e, call->arguments[1]) : NULL;
  list = shape_of_list(e, list ? completed(e, x, list) : NULL);
  if (!list) return POISON;
  const Size *have = product_of(e, x->rank, x->dims), *want = have ? product_of(e, list->n, list->items) : NULL;
  if (!want || !need_same(e, have, want, "reshape: %T and %L do not have the same number of elements", x, list))
    return POISON;
  if (!keeps_items(e, x, list)) return POISON;
  return made_value(e, build_reshape(build_here(e), x, list->n, list->items));
}

Value primitive_transpose(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], ANY_DTYPE, "x of transpose", "");
  int32_t i = x ? axis_of(e, call->arguments[1], x->rank) : -1;
  int32_t j = i < 0 ? -1 : axis_of(e, call->arguments[2], x->rank);
  if (j < 0) return POISON;
  return i == j ? value_tensor(x) : made_value(e, build_transpose(build_here(e), x, (uint32_t)i, (uint32_t)j));
}

/* [..., t, n*h] to [..., t, n, h], then the two middle axes change places. */
Value primitive_split_heads(Elaborator *e, const PrimitiveCall *call) {
  int64_t n;
  Node *x = tensor_of(e, call->arguments[0], ANY_DTYPE, "x of split_heads", "");
  if (!x || !integer_of(e, call->arguments[1], "the number of heads", &n)) return POISON;
  if (x->rank < 2 || n < 1)
    return fail(e, DIAG_RANGE, "split_heads of %K into %D heads: it needs two axes or more, and at least one head",
                value_tensor(x), n);
  if (!within_items(e, "split_heads", 2, x->dims + x->rank - 2) || !rank_fits(e, "the result", x->rank + 1))
    return POISON;
  const Size *heads = size_const(e->sizes, n), *head = size_div(e->sizes, x->dims[x->rank - 1], heads);
  if (!head) return fail(e, DIAG_SHAPE, "split_heads: the last axis of %T is not a multiple of %D heads", x, n);
  const Size *dims[MAX_RANK];
  for (uint32_t i = 0; i + 1 < x->rank; i++) dims[i] = x->dims[i];
  dims[x->rank - 1] = heads;
  dims[x->rank] = head;
  Node *split = made(e, build_reshape(build_here(e), x, x->rank + 1u, dims));
  return split ? made_value(e, build_transpose(build_here(e), split, x->rank - 2u, x->rank - 1u)) : POISON;
}

/* [..., n, t, h] to [..., t, n, h], whose last two axes become one. */
Value primitive_merge_heads(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], ANY_DTYPE, "x of merge_heads", "");
  if (!x) return POISON;
  uint32_t rank = x->rank;
  if (rank < 3) return fail(e, DIAG_SHAPE, "merge_heads of %K: it needs [..., heads, time, head_dim]", value_tensor(x));
  if (!within_items(e, "merge_heads", 3, x->dims + rank - 3)) return POISON;
  const Size *dims[MAX_RANK];
  for (uint32_t i = 0; i + 3 < rank; i++) dims[i] = x->dims[i];
  dims[rank - 3] = x->dims[rank - 2];
  dims[rank - 2] = product_of(e, 2, (const Size *[]){x->dims[rank - 3], x->dims[rank - 1]});
  if (!dims[rank - 2]) return POISON;
  Node *swapped = made(e, build_transpose(build_here(e), x, rank - 3, rank - 2));
  return swapped ? made_value(e, build_reshape(build_here(e), swapped, rank - 1, dims)) : POISON;
}

/* The sizes of expand with those that -1 keeps. NULL after an error. */
static const SizeList *expanded_sizes(Elaborator *e, const Node *x, const SizeList *list) {
  if (list->n < x->rank) {
    fail(e, DIAG_SHAPE, "expand of %T to %L: it needs %d sizes or more", x, list, (int)x->rank);
    return NULL;
  }
  uint32_t added = list->n - x->rank;
  const Size **items = ARENA_ARRAY(e->arena, const Size *, list->n + 1u);
  for (uint32_t i = 0; i < list->n; i++)
    items[i] = i >= added && size_equals(list->items[i], -1) ? x->dims[i - added] : list->items[i];
  SizeList *full = ARENA_NEW(e->arena, SizeList);
  *full = (SizeList){list->n, items};
  list = shape_of_list(e, full);
  for (uint32_t i = added; i < full->n && list; i++) {
    const Size *have = x->dims[i - added];
    if (size_equals(have, 1) || have == items[i]) continue;
    if (!need_same(e, have, items[i], "expand: %T cannot be broadcast to %L", x, list)) return NULL;
  }
  return list;
}

/* No operand has the result's shape, so a constant of that shape gives it: x * 1, x + 0 for i32, x or false. All keep
 * every x as it is (-0 too), and passes make them part of what reads the result. */
static Node *repeated(Elaborator *e, Node *x, const SizeList *list) {
  Builder *b = build_here(e);
  bool is_f32 = x->dtype == DTYPE_F32;
  Node *same = made(e, build_filled(b, x->dtype, is_f32 ? 1 : 0, list->n, list->items));
  return same ? made(e, build_binary(b, is_f32 ? OP_MUL : x->dtype == DTYPE_I32 ? OP_ADD : OP_OR, x, same)) : NULL;
}

/* The batch of a ragged model must stay the axis that it is; x without it may be given to every item. */
Value primitive_expand(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], ANY_DTYPE, "x of expand", "");
  const SizeList *list = x ? listed_sizes(e, call->arguments[1]) : NULL;
  list = list ? expanded_sizes(e, x, list) : NULL;
  if (!list) return POISON;
  uint32_t added = list->n - x->rank, n_items = 0;
  bool moves = false, has_items = false, is_same = added == 0;
  for (uint32_t i = 0; i < list->n; i++) {
    bool is_items = involves_items(e, list->items[i]), was = i >= added && involves_items(e, x->dims[i - added]);
    n_items += is_items;
    has_items |= was;
    moves |= was && !is_items;
    is_same &= i >= added && list->items[i] == x->dims[i - added];
  }
  if ((moves || n_items > 1) && !within_items(e, "expand", list->n, list->items)) return POISON;
  if (moves && has_items && !within_items(e, "expand", x->rank, x->dims)) return POISON;
  if (is_same) return value_tensor(x);
  return value_tensor(with_known_dims(e, repeated(e, x, list), list->n, list->items));
}

/* A constant of f32 in any shape, also of run-time sizes. */
Value primitive_full(Elaborator *e, const PrimitiveCall *call) {
  double number;
  const SizeList *list = shape_of_list(e, listed_sizes(e, call->arguments[0]));
  if (!list || !real_of(e, call->arguments[1], "the value of full", &number)) return POISON;
  return made_value(e, build_full(build_here(e), number, list->n, list->items));
}

// ---- questions ----

/* A size rather than a tensor, so that shapes can be computed with it. */
Value primitive_shape(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], ANY_DTYPE, "x of shape", "");
  int32_t i = x ? axis_of(e, call->arguments[1], x->rank) : -1;
  return i < 0 ? POISON : value_size(x->dims[i]);
}

Value primitive_rank(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], ANY_DTYPE, "x of rank", "");
  return x ? value_integer(x->rank) : POISON;
}

Value primitive_len(Elaborator *e, const PrimitiveCall *call) {
  const List *list = list_of(e, call->arguments[0]);
  return list ? value_integer(list->n) : fail(e, DIAG_KIND, "len of %K: it takes a list", call->arguments[0]);
}

Value primitive_is_list(Elaborator *e, const PrimitiveCall *call) {
  return value_bool(list_of(e, call->arguments[0]) != NULL);
}

/* The primitive f32, i32 or bool itself, to be compared with its name. */
Value primitive_dtype(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], ANY_DTYPE, "x of dtype", "");
  return x ? e->dtypes[x->dtype] : POISON;
}

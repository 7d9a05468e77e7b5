/* Forms that the later stages take: the shapes of gathers, softmaxes and linears, and rotations as pointwise work.
 *
 * In: operations of the language. Out: the same values from operations that plan knows. Nothing is refused: these
 * passes run at every level of optimization, and plan takes what they leave as it is. Static nodes are left alone,
 * because the interpreter computes them before any run. */
#include <string.h>

#include "passes/match.h"

enum { MOST_MIXED = 32 }; /* heads or channels that are mixed where they lie: their weight is read, not packed */

// ---- lower-shapes ----

/* Shapes that the later stages take.
 *
 *   gather of a table [n, a, b]       gather of [n, a*b], reshaped
 *   softmax along another axis        permuted, along the last axis, permuted back
 *   linear from one feature           pointwise: x * w + 0, each with each
 *   linear with a computed weight     matmul with the weight transposed: only weights that are known are packed
 *   shift by n                        slice of a concat of zeros and x that shifts of x share; far: taken, or 0
 *   linear of a few heads or channels, moved to the end and back: matmul of the weight and what lies there
 *
 * Always legal: views around the same operation. */

/* Kernels gather rows of a matrix. NULL: the table is one, or a row has too large a polynomial of elements. */
static Node *lower_gather(Pass *pass, Builder *b, Node *node) {
  Node *table = node->inputs.items[0];
  if (table->rank == 2) return NULL;
  const Size *width = sizes_product(pass->graph->sizes, table->rank - 1u, table->dims + 1);
  if (!width) return NULL;
  Node *flat = match_reshape(b, table, 2, (const Size *const[]){table->dims[0], width});
  return build_reshape(b, build_gather(b, flat, node->inputs.items[1]), node->rank, node->dims);
}

/* Kernels reduce contiguous rows. Swapping two axes is its own inverse, so one permutation serves both ways. */
static Node *lower_softmax(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  uint32_t last = node->rank - 1u, axis = (uint32_t)node->attr.axis;
  if (axis == last) return NULL;
  uint8_t axes[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++) axes[i] = (uint8_t)i;
  axes[axis] = (uint8_t)last;
  axes[last] = (uint8_t)axis;
  Node *rows = build_softmax(b, node->op, build_permute(b, node->inputs.items[0], axes), (int32_t)last);
  return build_permute(b, rows, axes);
}

/* What mixes a few heads, or channels: a linear whose operand has them last only because they were moved there, over
 * rows that lie one behind the other, and whose result is moved back by all who use it (`result`: the linear, or the
 * sum with its bias). The weight times the rows as they lie is the same chain of products, and nothing is moved. */
static bool mixes_in_place(Pass *pass, const Node *linear, const Node *result) {
  const Node *x = linear->inputs.items[0], *w = linear->inputs.items[1];
  uint32_t last = x->rank - 1u;
  int64_t n, k;
  if (x->op != OP_PERMUTE || x->rank < 3 || x->attr.axes[last - 1u] != last || !match_is_static(pass, w)) return false;
  if (!size_is_const(w->dims[0], &n) || n > MOST_MIXED) return false;
  if (!size_is_const(w->dims[1], &k) || k > MOST_MIXED) return false;
  if (linear->attr.expr || linear->attr.form != TFM_FORM_F32) return false;
  if (!result->users.n || graph_is_output(pass->graph, result)) return false;
  for (size_t i = 0; i < result->users.n; i++)
    if (result->users.items[i]->op != OP_PERMUTE || result->users.items[i]->attr.axes[last] != last - 1u) return false;
  return true;
}

/* [n, rows]; the last two axes are those of the linear, turned round. */
static Node *mixed(Builder *b, const Node *linear) {
  return build_matmul(b, linear->inputs.items[1], match_swap_last_two(b, linear->inputs.items[0]));
}

static Node *lower_bias(Pass *pass, Builder *b, Node *node) {
  Node *linear = node->inputs.items[0], *bias = node->inputs.items[1];
  if (linear->op != OP_LINEAR || linear->users.n != 1 || bias->rank != 1 || !mixes_in_place(pass, linear, node))
    return NULL;
  const Size *column[] = {bias->dims[0], size_const(pass->graph->sizes, 1)};
  return match_swap_last_two(b, build_binary(b, OP_ADD, mixed(b, linear), match_reshape(b, bias, 2, column)));
}

/* A linear from one feature: a column times a row. The chain of one product is the product, added to 0, which makes 0
 * of -0 (with FMA a product that underflowed kept its sign). As pointwise work it becomes one with what follows, where
 * a tile is a call for every few results. */
static Node *from_one_feature(Builder *b, Node *node) {
  Node *x = node->inputs.items[0], *w = node->inputs.items[1];
  int64_t k;
  if (!size_is_const(w->dims[1], &k) || k != 1 || node->attr.form != TFM_FORM_F32) return NULL;
  Node *inputs[] = {x, match_reshape(b, w, 1, (const Size *const[]){w->dims[0]})};
  Node *by = graph_add(b->graph, b->before, OP_POINTWISE, DTYPE_F32, node->rank, (const Size *const *)node->dims, 2,
                       inputs, b->origin);
  Arena *arena = b->graph->arena;
  Expr *product = expr_op(arena, OP_MUL, DTYPE_F32, expr_input(arena, DTYPE_F32, 0), expr_input(arena, DTYPE_F32, 1),
                          NULL);
  by->attr.expr = expr_op(arena, OP_ADD, DTYPE_F32, product, expr_number(arena, 0), NULL);
  return by;
}

/* Only weights that are known before any run are packed. A vector becomes a matrix of one row, and back. */
static Node *lower_linear(Pass *pass, Builder *b, Node *node) {
  Node *x = node->inputs.items[0], *w = node->inputs.items[1];
  if (mixes_in_place(pass, node, node)) return match_swap_last_two(b, mixed(b, node));
  if (node->attr.expr) return NULL;
  Node *product = from_one_feature(b, node);
  if (product) return product;
  if (match_is_static(pass, w)) return NULL;
  Node *transposed = match_swap_last_two(b, w);
  if (x->rank > 1) return build_matmul(b, x, transposed);
  const Size *one = size_const(pass->graph->sizes, 1);
  Node *row = build_reshape(b, x, 2, (const Size *const[]){one, x->dims[0]});
  return build_reshape(b, build_matmul(b, row, transposed), 1, node->dims);
}

enum { MOST_ZEROS = 4096 }; /* more than a window that a model looks back; beyond, zeros would cost more than ids */

/* How far the node moves x along the axis, or how many zeros it puts before x to do that (behind x: below 0). 0: it
 * does neither. */
static int64_t reach_of(const Node *user, const Node *x, int32_t axis) {
  int64_t n = 0;
  if (user->attr.axis != axis) return 0;
  if (user->op == OP_SHIFT) return size_is_const(user->attr.size, &n) ? n : 0;
  if (user->op != OP_CONCAT || user->inputs.n != 2) return 0;
  const bool is_before = user->inputs.items[1] == x;
  const Node *zeros = user->inputs.items[is_before ? 0 : 1];
  const bool fits = zeros->op == OP_FULL && zeros->attr.number == 0 && zeros->attr.integer == 0 &&
                    size_is_const(zeros->dims[axis], &n);
  return !fits ? 0 : is_before ? n : -n;
}

/* The farthest that x is moved the same way, not beyond MOST_ZEROS: all such shifts are slices of one concat, which cse
 * finds equal. */
static int64_t farthest(const Node *node, int64_t n) {
  const Node *x = node->inputs.items[0];
  int64_t most = n;
  for (size_t i = 0; i < x->users.n; i++) {
    const int64_t reach = reach_of(x->users.items[i], x, node->attr.axis);
    if (n > 0 && reach > most && reach <= MOST_ZEROS) most = reach;
    if (n < 0 && reach < most && reach >= -MOST_ZEROS) most = reach;
  }
  return most;
}

/* The shift of x by n, n > 0: of [zeros, x] those from zeros - n on. Backwards: of [x, zeros] those from -n on. */
static Node *shift_near(Builder *b, Node *node, int64_t n) {
  SizeTable *sizes = b->graph->sizes;
  const uint32_t axis = (uint32_t)node->attr.axis;
  const int64_t most = farthest(node, n);
  Node *x = node->inputs.items[0];
  const Size *dims[MAX_RANK], *starts[MAX_RANK];
  for (uint32_t i = 0; i < x->rank; i++) {
    dims[i] = i == axis ? size_const(sizes, n < 0 ? -most : most) : x->dims[i];
    starts[i] = size_const(sizes, i != axis ? 0 : n < 0 ? -n : most - n);
  }
  Node *zeros = build_filled(b, x->dtype, 0, x->rank, dims);
  Node *joined = build_concat(b, 2, n < 0 ? (Node *[]){x, zeros} : (Node *[]){zeros, x}, (int32_t)axis);
  return build_slice(b, joined, starts, (const Size *const *)x->dims);
}

/* Without room for the zeros: element t - n, or any that there is and 0 in its place. */
static Node *shift_far(Builder *b, Node *node, int64_t n) {
  const uint32_t axis = (uint32_t)node->attr.axis;
  Node *x = node->inputs.items[0];
  Node *zeros = build_filled(b, x->dtype, 0, x->rank, (const Size *const *)x->dims);
  if (n > INT32_MAX || n < -INT32_MAX) return zeros;
  const Size *one = size_const(b->graph->sizes, 1), *dims[MAX_RANK];
  for (uint32_t i = 0; i < x->rank; i++) dims[i] = i == axis ? x->dims[axis] : one;
  Node *at = build_reshape(b, build_positions(b, x->dims[axis]), x->rank, dims);
  Node *from = build_binary(b, OP_SUB, at, build_scalar(b, DTYPE_I32, 0, n));
  /* what does not fit an i32 wraps to a number below 0 */
  Node *begun = build_binary(b, OP_GE, from, build_scalar(b, DTYPE_I32, 0, 0));
  Node *not_over = build_binary(b, OP_LT, from, build_size(b, DTYPE_I32, x->dims[axis]));
  Node *is_there = build_binary(b, OP_AND, begun, not_over);
  Node *taken = build_take(b, x, build_where(b, is_there, from, at), (int32_t)axis);
  return build_where(b, is_there, taken, zeros);
}

static Node *lower_shift(Pass *pass, Builder *b, Node *node) {
  int64_t n = 0;
  (void)pass;
  size_is_const(node->attr.size, &n);
  if (n == 0) return node->inputs.items[0];
  return n > MOST_ZEROS || n < -MOST_ZEROS ? shift_far(b, node, n) : shift_near(b, node, n);
}

bool pass_lower_shapes(Pass *pass) {
  static Node *(*const rules[N_OPS])(Pass *, Builder *, Node *) = {[OP_GATHER] = lower_gather,
                                                                   [OP_SOFTMAX] = lower_softmax,
                                                                   [OP_LOG_SOFTMAX] = lower_softmax,
                                                                   [OP_LINEAR] = lower_linear,
                                                                   [OP_SHIFT] = lower_shift,
                                                                   [OP_ADD] = lower_bias};
  bool changed = false;
  for (Node *node = pass->graph->first, *next; node; node = next) {
    next = node->next;
    if (!rules[node->op] || match_is_static(pass, node)) continue;
    Builder b = pass_builder(pass, node, node);
    Node *by = rules[node->op](pass, &b, node);
    if (!by) continue;
    match_replace(pass, node, by);
    changed = true;
  }
  return changed;
}

// ---- lower-rotary ----

/* Rotary positions: a table of cosines and sines, and one pointwise expression over pairs.
 *
 *   %3 = rotary %x, %pos      %3 = rotary_table %pos                      [..., 2, h/2]: cosines, then sines
 *                             %4 = reshape %x : [..., t, 2, h/2]          a, b: rows 0 and 1, slices of it
 *                             %5 = pointwise %a, %b, %cos, %sin,
 *                                  { where(eq(index1, 0), a cos - b sin, b cos + a sin) }
 *                             %6 = reshape %5 : [..., t, h]
 *
 * Neighbours (interleaved): x is seen as [..., t, h/2, 2], a and b are its columns, told apart by index0. a and b
 * broadcast along the axis of 2: that costs each product twice, but no pass to put the halves together. Equal tables
 * of several layers are merged by cse. Always legal; plan has no rotary. Where there is no room for one axis more,
 * the first two axes are seen as one meanwhile. */

/* The angles depend on the position alone, so the table is made once for all heads, layers, queries and keys. */
static Node *rotary_table(Pass *pass, Node *rotary, const Size *half) {
  Node *pos = rotary->inputs.items[1];
  const Size *dims[MAX_RANK];
  memcpy(dims, pos->dims, sizeof dims);
  dims[pos->rank] = size_const(pass->graph->sizes, 2);
  dims[pos->rank + 1u] = half;
  Node *table = graph_add(pass->graph, rotary, OP_ROTARY_TABLE, DTYPE_F32, pos->rank + 2u, dims, 1, &pos,
                          rotary->origin);
  table->attr.base = rotary->attr.base;
  return table;
}

/* Row `row` of the table: [..., 1, h/2], for neighbours [..., h/2, 1]. */
static Node *table_row(Builder *b, Node *table, int64_t row, bool interleaved) {
  Node *slice = match_slice(b, table, table->rank - 2u, row, 1);
  return interleaved ? match_swap_last_two(b, slice) : slice;
}

/* where(index == 0, a cos - b sin, b cos + a sin) of inputs a, b, cos, sin. */
static Expr *rotation(Arena *arena, uint32_t pair_axis) {
  Expr *in[4];
  for (uint32_t i = 0; i < 4; i++) in[i] = expr_input(arena, DTYPE_F32, i);
  Expr *a_cos = expr_op(arena, OP_MUL, DTYPE_F32, in[0], in[2], NULL);
  Expr *b_sin = expr_op(arena, OP_MUL, DTYPE_F32, in[1], in[3], NULL);
  Expr *b_cos = expr_op(arena, OP_MUL, DTYPE_F32, in[1], in[2], NULL);
  Expr *a_sin = expr_op(arena, OP_MUL, DTYPE_F32, in[0], in[3], NULL);
  Expr *zero = expr_integer(arena, DTYPE_I32, 0);
  Expr *is_first = expr_op(arena, OP_EQ, DTYPE_BOOL, expr_index(arena, pair_axis), zero, NULL);
  return expr_op(arena, OP_WHERE, DTYPE_F32, is_first, expr_op(arena, OP_SUB, DTYPE_F32, a_cos, b_sin, NULL),
                 expr_op(arena, OP_ADD, DTYPE_F32, b_cos, a_sin, NULL));
}

/* pairs [..., 2, h/2] or [..., h/2, 2], rotated. */
static Node *rotate(Builder *b, Node *pairs, Node *table, bool interleaved) {
  uint32_t axis = pairs->rank - (interleaved ? 1u : 2u);
  Node *inputs[4];
  for (uint32_t i = 0; i < 2; i++) inputs[i] = match_slice(b, pairs, axis, i, 1);
  for (uint32_t i = 0; i < 2; i++) inputs[2 + i] = table_row(b, table, i, interleaved);
  Node *rotated = graph_add(b->graph, b->before, OP_POINTWISE, DTYPE_F32, pairs->rank,
                            (const Size *const *)pairs->dims, 4, inputs, b->origin);
  rotated->attr.expr = rotation(b->graph->arena, interleaved ? 0 : 1);
  return rotated;
}

/* The dims of x with its last axis as pairs; how many there are. False: there is no room. */
static bool dims_of_pairs(Pass *pass, const Node *node, const Size *half, uint32_t *rank, const Size **dims) {
  const Node *x = node->inputs.items[0];
  uint32_t merged = x->rank == MAX_RANK ? 1 : 0, n = 0;
  if (merged && node->inputs.items[1]->rank + 2u > x->rank - 1u) return false;
  for (uint32_t i = merged; i + 1u < x->rank; i++) dims[n++] = x->dims[i];
  if (merged) dims[0] = size_mul(pass->graph->sizes, x->dims[0], x->dims[1]);
  const Size *two = size_const(pass->graph->sizes, 2);
  dims[n++] = node->attr.interleaved ? half : two;
  dims[n++] = node->attr.interleaved ? two : half;
  *rank = n;
  return dims[0] != NULL;
}

/* False: the rotation stays as it is, for want of an axis or because its width is no multiple of 2. */
static bool lower(Pass *pass, Node *node) {
  Node *x = node->inputs.items[0];
  const Size *half = size_div(pass->graph->sizes, dim_from_end(x, 0), size_const(pass->graph->sizes, 2));
  const Size *dims[MAX_RANK];
  uint32_t rank;
  if (!half || !dims_of_pairs(pass, node, half, &rank, dims)) return false;
  Builder b = pass_builder(pass, node, node);
  Node *table = rotary_table(pass, node, half);
  Node *by = rotate(&b, match_reshape(&b, x, rank, dims), table, node->attr.interleaved);
  match_replace(pass, node, match_reshape(&b, by, node->rank, node->dims));
  return true;
}

bool pass_lower_rotary(Pass *pass) {
  bool changed = false;
  for (Node *node = pass->graph->first, *next; node; node = next) {
    next = node->next;
    if (node->op == OP_ROTARY && !match_is_static(pass, node)) changed |= lower(pass, node);
  }
  return changed;
}

/* Narrow rows: a slice moves towards the inputs, so that only the rows that are used are computed.
 *
 *   %4 = linear %3, %w : [b, t, 8]             %4 = slice %3, starts=[0, 0, 0] : [b, 1, 8]
 *   %5 = gelu %4 : [b, t, 8]             ->    %5 = linear %4, %w : [b, 1, 8]
 *   %6 = slice %5 : [b, 1, 8]                  %6 = gelu %5 : [b, 1, 8]
 *
 * Legal:
 *   1. every row of the result is made of the same row of the operands alone: the table below says of which axis;
 *   2. the operation has no other use, and is no output: nothing is computed twice. Masks are the exception: attention
 *      computes them again wherever they are used;
 *   3. the axis is not the last, except through a permutation: columns are what kernels are wide in, and what
 *      projections are merged by;
 *   4. an operand has the very size of the axis, or 1, which broadcasts and stays whole;
 *   5. what is known before any run stays whole: it is computed once;
 *   6. an operation that can fail (ids out of a table, division by zero) fails as before: it keeps its rows;
 *   7. probabilities that are used elsewhere stay beside their product, where attention is looked for.
 * A row is computed by the same operations from the same numbers whether the others are computed or not, so the bits
 * stay.
 * Runs on primitive operations, before they are fused. Pays: the last layer of a classifier computes queries, scores,
 * projections and norms of one row per item. */
#include "passes/narrow_rows.h"

#include <string.h>

// ---- which axes of the operands an axis of the result is made of ----

/* An operation without a row in the table keeps all its rows: sources; gathers and integer divisions, whose faults
 * must stay; whatever was fused. */

typedef bool AxesRule(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes);

static const Node *input(const Node *node, size_t i) { return node->inputs.items[i]; }

/* The axis of an operand that is aligned with the result at the last axis; -1: it broadcasts there. */
static int32_t aligned(const Node *x, uint32_t rank, uint32_t axis) {
  int32_t own = (int32_t)(axis + x->rank) - (int32_t)rank;
  return own < 0 || dim_is_one(x->dims[own]) ? -1 : own;
}

/* The last axis never moves (rule 3 of the head): `axis + 1 < rank` in this and the next rules. */
static bool axes_of_pointwise(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  for (size_t i = 0; i < node->inputs.n; i++) axes[i] = aligned(input(node, i), node->rank, axis);
  return axis + 1u < node->rank;
}

/* Only the first operand has rows; the others are weights. */
static bool axes_of_rows(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  for (size_t i = 0; i < node->inputs.n; i++) axes[i] = i == 0 ? (int32_t)axis : -1;
  return axis + 1u < node->rank && !node->attr.expr;
}

/* Rows come from x, the axes before them from both; y is used whole along the rows. */
static bool axes_of_matmul(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  axes[0] = aligned(input(node, 0), node->rank, axis);
  axes[1] = axis + 2u < node->rank ? aligned(input(node, 1), node->rank, axis) : -1;
  return axis + 1u < node->rank;
}

static bool axes_of_softmax(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  axes[0] = (int32_t)axis;
  return axis + 1u < node->rank && axis != (uint32_t)node->attr.axis;
}

static bool axes_of_reduction(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  uint32_t reduced = (uint32_t)node->attr.axis;
  bool gone = node->rank < input(node, 0)->rank;
  axes[0] = (int32_t)(gone && axis >= reduced ? axis + 1 : axis);
  return axes[0] + 1 < input(node, 0)->rank && (gone || axis != reduced);
}

static bool axes_of_concat(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  for (size_t i = 0; i < node->inputs.n; i++) axes[i] = (int32_t)axis;
  return axis + 1u < node->rank && axis != (uint32_t)node->attr.axis;
}

/* A permutation moves any axis, the last too: it costs nothing, and what stands below decides for itself. */
static bool axes_of_permute(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  axes[0] = node->attr.axes[axis];
  return true;
}

/* The elements before an axis; NULL: too large a polynomial. */
static const Size *elements_before(SizeTable *sizes, const Node *node, uint32_t axis) {
  return sizes_product(sizes, axis, node->dims);
}

/* In row-major order an axis survives a reshape if it has the same size and as many elements stand before it. */
static bool axes_of_reshape(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  const Node *x = input(node, 0);
  const Size *before = elements_before(sizes, node, axis);
  for (uint32_t i = 0; i + 1u < x->rank && before && axis + 1u < node->rank; i++) {
    if (x->dims[i] != node->dims[axis] || elements_before(sizes, x, i) != before) continue;
    axes[0] = (int32_t)i;
    return true;
  }
  return false;
}

static bool axes_of_rotary(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  (void)sizes;
  axes[0] = (int32_t)axis;
  axes[1] = axis + 1u < node->rank ? aligned(input(node, 1), node->rank - 1u, axis) : -1;
  return axis + 1u < node->rank;
}

static AxesRule *const rules[N_OPS] = {
    [OP_LINEAR] = axes_of_rows,      [OP_LAYER_NORM] = axes_of_rows, [OP_RMS_NORM] = axes_of_rows,
    [OP_SINUSOID] = axes_of_rows,    [OP_MATMUL] = axes_of_matmul,   [OP_SOFTMAX] = axes_of_softmax,
    [OP_LOG_SOFTMAX] = axes_of_softmax, [OP_SUM] = axes_of_reduction, [OP_MEAN] = axes_of_reduction,
    [OP_MAX] = axes_of_reduction,    [OP_MIN] = axes_of_reduction,   [OP_ARGMAX] = axes_of_reduction,
    [OP_CONCAT] = axes_of_concat,    [OP_PERMUTE] = axes_of_permute, [OP_RESHAPE] = axes_of_reshape,
    [OP_ROTARY] = axes_of_rotary,
};

bool narrow_axes(SizeTable *sizes, const Node *node, uint32_t axis, int32_t *axes) {
  if (node->op == OP_FLOORDIV || node->op == OP_FLOORMOD) return false;
  if (op_is_pointwise(node->op)) return axes_of_pointwise(sizes, node, axis, axes);
  return rules[node->op] && rules[node->op](sizes, node, axis, axes);
}

// ---- slices ----

/* Whether the slice takes less than all of the axis. */
static bool is_cut(const Node *slice, uint32_t axis) {
  return slice->dims[axis] != slice->inputs.items[0]->dims[axis] || !size_equals(slice->attr.starts[axis], 0);
}

static bool cuts_anything(const Node *slice) {
  for (uint32_t axis = 0; axis < slice->rank; axis++)
    if (is_cut(slice, axis)) return true;
  return false;
}

static bool same_window(const Node *a, const Node *b) {
  return !memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) &&
         !memcmp(a->attr.starts, b->attr.starts, a->rank * sizeof *a->attr.starts);
}

/* The first slice among the users from the i-th on. */
static Node *slice_user(const Node *node, size_t i) {
  for (; i < node->users.n; i++)
    if (node->users.items[i]->op == OP_SLICE) return node->users.items[i];
  return NULL;
}

/* Another slice of the node with the window of `slice`. */
static Node *equal_slice(const Node *node, const Node *slice) {
  for (size_t i = 0; i < node->users.n; i++) {
    Node *other = node->users.items[i];
    if (other != slice && other->op == OP_SLICE && same_window(other, slice)) return other;
  }
  return NULL;
}

/* Equal slices become one, right behind what they are cut from. */
static bool merge_equal_slices(Pass *pass, Node *node) {
  bool changed = false;
  for (size_t i = 0; i < node->users.n; i++) {
    Node *slice = node->users.items[i], *other;
    if (slice->op != OP_SLICE || !equal_slice(node, slice)) continue;
    if (node->next != slice) graph_move_before(pass->graph, slice, node->next);
    while ((other = equal_slice(node, slice))) {
      graph_replace_uses(pass->graph, other, slice);
      graph_delete(pass->graph, other);
    }
    changed = true;
    i = (size_t)-1; /* the list of users is another one now */
  }
  return changed;
}

// ---- what may be narrowed ----

/* A selection of known numbers, or a truth, that costs no more to compute again than to read. */
static bool is_mask(const Node *node, unsigned depth) {
  double number;
  if (node->dtype == DTYPE_BOOL) return op_is_pointwise(node->op) && op_is_cheap(node->op);
  if (depth == 0 || !op_is_pointwise(node->op) || !op_is_cheap(node->op)) return false;
  for (size_t i = 0; i < node->inputs.n; i++) {
    const Node *x = node->inputs.items[i];
    if (x->dtype != DTYPE_BOOL && !match_number(x, &number) && !is_mask(x, depth - 1)) return false;
  }
  return true;
}

/* Whether the node multiplies probabilities, perhaps behind views, that something besides this product uses. */
static bool multiplies_shared_probabilities(Pass *pass, const Node *node) {
  if (node->op != OP_MATMUL) return false;
  bool alone = true;
  for (const Node *user = node, *x = node->inputs.items[0];; user = x, x = x->inputs.items[0]) {
    alone &= match_only_user(pass, x) == user;
    if (op_table[x->op].category != CATEGORY_VIEW) return x->op == OP_SOFTMAX && !alone;
  }
}

static bool may_narrow(Pass *pass, const Node *node, const Node *slice) {
  enum { MAX_DEPTH = 4 };
  if (match_is_static(pass, node) || !cuts_anything(slice)) return false;
  if (match_only_user(pass, node) != slice && !is_mask(node, MAX_DEPTH)) return false;
  return !multiplies_shared_probabilities(pass, node);
}

// ---- the operands, cut ----

typedef struct Window { /* of one operand */
  const Size *starts[MAX_RANK], *dims[MAX_RANK];
  bool cut;
} Window;

/* All of every operand, to begin with. */
static void open_windows(Pass *pass, const Node *node, Window *windows) {
  for (size_t i = 0; i < node->inputs.n; i++) {
    const Node *x = node->inputs.items[i];
    for (uint32_t axis = 0; axis < x->rank; axis++) {
      windows[i].starts[axis] = size_const(pass->graph->sizes, 0);
      windows[i].dims[axis] = x->dims[axis];
    }
  }
}

/* Cuts one axis in all operands that have it. False: the operation does not keep rows apart, an operand has another
 * size there, or no operand has the axis, so that cutting would save nothing. */
static bool cut_axis(Pass *pass, const Node *node, const Node *slice, uint32_t axis, Window *windows) {
  int32_t *axes = ARENA_ARRAY(pass->scratch, int32_t, node->inputs.n);
  if (!narrow_axes(pass->graph->sizes, node, axis, axes)) return false;
  bool any = false;
  for (size_t i = 0; i < node->inputs.n; i++) {
    if (axes[i] < 0) continue;
    if (node->inputs.items[i]->dims[axes[i]] != node->dims[axis]) return false;
    windows[i].starts[axes[i]] = slice->attr.starts[axis];
    windows[i].dims[axes[i]] = slice->dims[axis];
    windows[i].cut = any = true;
  }
  return any;
}

static Window *cut_operands(Pass *pass, const Node *node, const Node *slice) {
  Window *windows = ARENA_ARRAY(pass->scratch, Window, node->inputs.n);
  open_windows(pass, node, windows);
  for (uint32_t axis = 0; axis < node->rank; axis++)
    if (is_cut(slice, axis) && !cut_axis(pass, node, slice, axis, windows)) return NULL;
  return windows;
}

// ---- the narrow node ----

static void record(Pass *pass, const Node *node, const Node *narrow) {
  if (op_table[node->op].category != CATEGORY_CONTRACT) return;
  StrBuf from = strbuf_new(pass->scratch), to = strbuf_new(pass->scratch);
  node_print_shape(&from, pass->graph->sizes, node);
  node_print_shape(&to, pass->graph->sizes, narrow);
  pass_record(pass, FUSION_ROWS, true, node, "%s computed instead of %s: no other row is used", to.text, from.text);
}

static Node *slice_of_slice(Pass *pass, const Node *node, const Node *slice, Builder *b) {
  const Size *starts[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++) {
    starts[i] = size_add(pass->graph->sizes, node->attr.starts[i], slice->attr.starts[i]);
    if (!starts[i]) return NULL;
  }
  return build_slice(b, node->inputs.items[0], starts, (const Size *const *)slice->dims);
}

/* The node on cut operands, before it; NULL: it stays as it is. */
static Node *narrowed(Pass *pass, Node *node, const Node *slice) {
  Builder b = pass_builder(pass, node, slice);
  if (node->op == OP_SLICE) return slice_of_slice(pass, node, slice, &b);
  const Window *windows = cut_operands(pass, node, slice);
  if (!windows) return NULL;
  Node **operands = ARENA_ARRAY(pass->scratch, Node *, node->inputs.n);
  for (size_t i = 0; i < node->inputs.n; i++) {
    Node *x = node->inputs.items[i];
    operands[i] = windows[i].cut ? build_slice(&b, x, (const Size *const *)windows[i].starts,
                                               (const Size *const *)windows[i].dims)
                                 : x;
  }
  Node *narrow = graph_add(pass->graph, node, node->op, node->dtype, node->rank, (const Size *const *)slice->dims,
                           (uint32_t)node->inputs.n, operands, node->origin);
  narrow->attr = node->attr;
  record(pass, node, narrow);
  return narrow;
}

/* Narrows the node for every slice of it that may be moved. Returns the node at which the walk goes on: the narrow one,
 * whose operands are slices now, or the one before. */
static Node *narrow_node(Pass *pass, Node *node, bool *changed) {
  *changed |= merge_equal_slices(pass, node);
  Node *slice;
  for (size_t i = 0; (slice = slice_user(node, i));) {
    Node *by = may_narrow(pass, node, slice) ? narrowed(pass, node, slice) : NULL;
    while (i < node->users.n && node->users.items[i] != slice) i++;
    i++;
    if (!by) continue;
    *changed = true;
    graph_replace_uses(pass->graph, slice, by);
    graph_delete(pass->graph, slice);
    i = 0; /* the users are others now: a slice that may not be narrowed is asked again */
    if (node->users.n || graph_is_output(pass->graph, node)) continue;
    graph_delete(pass->graph, node);
    return by;
  }
  return node->prev;
}

/* From the outputs to the inputs, so that the users of a node are narrowed before it. Each step moves a slice up by one
 * node, so the walk ends at the inputs. */
bool pass_narrow_rows(Pass *pass) {
  bool changed = false;
  for (Node *node = pass->graph->last; node;) node = narrow_node(pass, node, &changed);
  return changed;
}

/* Decides whether a step gives the same numbers as the whole model.
 *
 * In: a node of the model. Out: whether its value at the first n positions stays what it is when further tokens
 * follow; if not, the reason, in words for the user.
 *
 * The argument is by induction over the nodes. Claim: for each node, the element at position t of every axis of the
 * length is the same for all lengths greater than t. Where an operation makes the elements along an axis of the length
 * one by one, position t of the result is made of position t of the operands, which by induction do not change. Where
 * it looks at all positions (a sum, a softmax, a product over them), what stands behind position t must be neutral for
 * t: 0 in a sum, -inf under a softmax. neutral.c proves that, or the model is refused. Everything else that looks at
 * the length is refused.
 *
 * The same must hold for items of the batch, because a step runs with whichever items are left: an operation that looks
 * from one item at another is refused too.
 *
 * The claim is all that a cache needs: what was computed for the first n positions may be stored and read again when
 * position n comes. It says nothing about order of summation; that the bits agree as well is the business of kernels
 * (docs/decisions/0002-bits.md), whose sums over keys begin at key 0 and add neutral elements without effect. */
#include <math.h>

#include "incremental/cut.h"

static const Node *input(const Node *node, size_t i) { return node->inputs.items[i]; }

/* Sizes that involve neither the length nor the batch are the same in the step, so nothing has to be shown of them. */
static bool matters(const Cut *cut, const Size *size) { return has_length(cut, size) || has_batch(cut, size); }

static const char *length_name(const Cut *cut) { return cut->graph->sizes->symbols[cut->time]; }

static bool refuse_batch(Cut *cut, const Node *node) {
  return cut_refuse(cut, node, "%s looks from one row of the batch at others", op_table[node->op].name);
}

// ---- shapes and sizes ----

/* Positions keep their coordinates only on an axis that is the length itself, or batch and length merged. On an axis of
 * size time + 1 or 2*time it is not known which coordinate belongs to which position. */
static bool size_can_be_followed(const Cut *cut, const Size *size) {
  return !has_length(cut, size) || is_length(cut, size) || is_merged(cut, size);
}

static bool refuse_axis(Cut *cut, const Node *node, const Size *size, const char *what) {
  StrBuf text = strbuf_new(cut->scratch);
  size_print(&text, cut->graph->sizes, size);
  return cut_refuse(cut, node, "%s of size %s: positions can only be followed on an axis of size %s", what, text.text,
                    length_name(cut));
}

static bool axes_are_sound(Cut *cut, const Node *node) {
  for (uint32_t axis = 0; axis < node->rank; axis++)
    if (!size_can_be_followed(cut, node->dims[axis])) return refuse_axis(cut, node, node->dims[axis], "an axis");
  return true;
}

/* A number made of the length differs from step to step. Positions along the batch number the rows, which move when
 * finished ones leave. Another input of the length would have to grow with the tokens, and nobody gives it. */
static bool sources_are_sound(Cut *cut, const Node *node) {
  if (node->op == OP_SIZE && has_length(cut, node->attr.size))
    return cut_refuse(cut, node, "the value depends on how long the row is: %s is used as a number", length_name(cut));
  if (node->op == OP_SIZE && has_batch(cut, node->attr.size)) return refuse_batch(cut, node);
  bool counts = node->op == OP_POSITIONS || node->op == OP_CAUSAL_MASK;
  for (uint32_t axis = 0; axis < node->rank && counts; axis++)
    if (has_batch(cut, node->dims[axis])) return refuse_batch(cut, node);
  if (node->op == OP_INPUT && node != cut->tokens && length_axes(cut, node))
    return cut_refuse(cut, node, "the input has the size %s too", length_name(cut));
  return true;
}

static bool refuse_sizes(Cut *cut, const Node *node, const Size *a, const Size *b) {
  StrBuf text = strbuf_new(cut->scratch);
  size_print(&text, cut->graph->sizes, a);
  strbuf_add(&text, " meets one of size ");
  size_print(&text, cut->graph->sizes, b);
  return cut_refuse(cut, node, "an axis of size %s", text.text);
}

/* Two different polynomials may be equal in a run, where a check makes sure of it. In a step they need not be, because
 * only one of them shrinks to the new positions. */
static bool operand_agrees(Cut *cut, const Node *node, const Node *x, uint32_t axis, int32_t own) {
  const Size *dim = node->dims[axis], *other = x->dims[own];
  if (other == dim || dim_is_one(other) || (!matters(cut, dim) && !matters(cut, other))) return true;
  return refuse_sizes(cut, node, dim, other);
}

static bool operands_agree(Cut *cut, const Node *node) {
  for (size_t i = 0; i < node->inputs.n; i++)
    for (uint32_t axis = 0; axis < node->rank; axis++) {
      int32_t own = step_axis(cut, node, i, axis);
      if (own >= 0 && !operand_agrees(cut, node, input(node, i), axis, own)) return false;
    }
  return true;
}

// ---- what is used whole ----

/* The number that may stand at later positions without changing the result; false if there is none: a mean divides by
 * the length, and argmax has no element that a real one always beats. */
static bool neutral_of(OpKind op, double *number) {
  switch (op) {
    case OP_SUM: *number = 0; return true;
    case OP_MAX:
    case OP_SOFTMAX:
    case OP_LOG_SOFTMAX: *number = -INFINITY; return true;
    case OP_MIN: *number = INFINITY; return true;
    default: return false;
  }
}

/* For the message only: finds an additive mask of a finite number, such as -1e9, within a few pointwise operations. */
static bool is_lowered(Cut *cut, const Node *x, uint32_t axis, uint32_t other, unsigned depth, double *number) {
  if (!depth || !op_is_pointwise(x->op)) return false;
  for (size_t i = 0; i < x->inputs.n; i++) {
    int32_t own = operand_axis(cut, x, i, axis), own_other = operand_axis(cut, x, i, other);
    if (own < 0 || own_other < 0) continue;
    bool is_added = x->op == OP_ADD && later_number(cut, input(x, i), (uint32_t)own, (uint32_t)own_other, number);
    if (is_added && *number < 0) return true;
    if (is_lowered(cut, input(x, i), (uint32_t)own, (uint32_t)own_other, depth - 1, number)) return true;
  }
  return false;
}

/* Chooses the message with the best cure. Only -inf hides a position from a softmax for certain: a row whose scores are
 * all masked by -1e9 gives each of them the same weight, later ones too. */
static bool refuse_softmax(Cut *cut, const Node *node) {
  enum { DEPTH = 6 };
  const Node *x = input(node, 0);
  const uint32_t keys = (uint32_t)node->attr.axis;
  const char *name = op_table[node->op].name;
  double number;
  for (uint32_t axis = 0; axis < x->rank; axis++) {
    if (axis == keys || !is_length(cut, x->dims[axis])) continue;
    if (later_number(cut, x, keys, axis, &number))
      return cut_refuse(cut, node, "%s over positions whose later ones are masked by %g, not by -inf", name, number);
    if (is_lowered(cut, x, keys, axis, DEPTH, &number))
      return cut_refuse(cut, node,
                        "%s over positions whose later ones are not masked by -inf: the mask adds %g, a finite number; "
                        "with -inf, or where(mask, -inf, scores), the model is incremental",
                        name, number);
  }
  return cut_refuse(cut, node, "%s over positions whose later ones are not masked", name);
}

/* The operand is used whole along an axis that matters. The maximum of a row whose later elements are -inf is that of
 * the others, and so on for each operation that neutral_of lists. */
static bool contraction_is_sound(Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  const Node *x = input(node, operand);
  const char *name = op_table[node->op].name;
  double number;
  if (has_batch(cut, x->dims[axis])) return refuse_batch(cut, node);
  if (!size_can_be_followed(cut, x->dims[axis])) return refuse_axis(cut, node, x->dims[axis], "an axis");
  if (!neutral_of(node->op, &number))
    return cut_refuse(cut, node, "%s over all positions: it changes with every token that follows", name);
  if (later_is(cut, x, axis, number)) return true;
  if (node->op == OP_SOFTMAX || node->op == OP_LOG_SOFTMAX) return refuse_softmax(cut, node);
  return cut_refuse(cut, node, "%s over positions whose later ones are not masked", name);
}

/* The softmax over these columns that the left operand of a product is, behind views; NULL. */
static const Node *softmax_behind(const Cut *cut, const Node *x) {
  x = node_behind_views(x);
  return x->op == OP_SOFTMAX && is_length(cut, x->dims[x->attr.axis]) ? x : NULL;
}

/* Keys that add_bias_kv or add_zero_attn append stand behind those of the positions, where new ones would have to
 * go. */
static bool refuse_longer_product(Cut *cut, const Node *node, const Size *k) {
  bool is_attention = node_behind_views(input(node, 0))->op == OP_SOFTMAX &&
                      node_behind_views(input(node, 1))->op == OP_CONCAT;
  return refuse_axis(cut, node, k, is_attention ? "extra keys are appended to the key axis, which is" : "an axis");
}

/* It is enough that one operand is 0 at later positions: the other is finite, or the left one is a softmax, whose zeros
 * are exact whatever stands right of them (docs/decisions/0002-bits.md). */
static bool product_is_sound(Cut *cut, const Node *node) {
  const Node *x = input(node, 0), *y = input(node, 1);
  uint32_t column = x->rank - 1u, row = y->rank - 2u;
  const Size *k = x->dims[column], *other = y->dims[row];
  if (has_batch(cut, k) || has_batch(cut, other)) return refuse_batch(cut, node);
  if (!has_length(cut, k) && !has_length(cut, other)) return true;
  if (k != other) return refuse_sizes(cut, node, k, other);
  if (!size_can_be_followed(cut, k)) return refuse_longer_product(cut, node, k);
  if (later_is(cut, x, column, 0) || later_is(cut, y, row, 0)) return true;
  const Node *softmax = softmax_behind(cut, x);
  if (softmax && !later_is(cut, input(softmax, 0), (uint32_t)softmax->attr.axis, -INFINITY))
    return refuse_softmax(cut, softmax);
  return cut_refuse(cut, node, "a product over positions whose later ones are not masked");
}

/* Whether some axis of the result is made of this axis of the operand one by one. */
static bool is_followed(const Cut *cut, const Node *node, size_t operand, uint32_t axis) {
  for (uint32_t i = 0; i < node->rank; i++)
    if (step_axis(cut, node, operand, i) == (int32_t)axis) return true;
  return false;
}

static bool contractions_are_sound(Cut *cut, const Node *node) {
  if (node->op == OP_MATMUL) return product_is_sound(cut, node);
  for (size_t i = 0; i < node->inputs.n; i++)
    for (uint32_t axis = 0; axis < input(node, i)->rank; axis++)
      if (matters(cut, input(node, i)->dims[axis]) && !is_followed(cut, node, i, axis) &&
          !contraction_is_sound(cut, node, i, axis))
        return false;
  return true;
}

// ---- operations with rules of their own ----

/* Two slices are sound: one that leaves the axis of the length whole, and one that cuts the first rows of a table to
 * the length, where row t belongs to position t. */
static bool slice_is_sound(Cut *cut, const Node *node) {
  for (uint32_t axis = 0; axis < node->rank; axis++) {
    const Size *from = input(node, 0)->dims[axis], *to = node->dims[axis], *start = node->attr.starts[axis];
    if (!matters(cut, from) && !matters(cut, to) && !matters(cut, start)) continue;
    if (matters(cut, from) && (from != to || !size_equals(start, 0)))
      return cut_refuse(cut, node, "positions are cut out of a row: only whole rows can be followed");
    if (!matters(cut, from) && (!is_length(cut, to) || matters(cut, start)))
      return cut_refuse(cut, node, "which part is cut out depends on how long the row is");
  }
  return true;
}

/* The one axis whose size has the batch in it; `rank` if there is none, or more than one. */
static uint32_t batch_axis(const Cut *cut, const Node *node) {
  uint32_t found = node->rank;
  for (uint32_t axis = 0; axis < node->rank; axis++) {
    if (!has_batch(cut, node->dims[axis])) continue;
    if (found < node->rank) return node->rank;
    found = axis;
  }
  return found;
}

/* Axes may be merged with the axis of the batch as long as the rows of an item stay together: the batch must have as
 * many elements before it afterwards, so that leaving out a row leaves out the same elements on both sides. */
static bool reshape_is_sound(Cut *cut, const Node *node) {
  const Node *x = input(node, 0);
  for (uint32_t axis = 0; axis < x->rank; axis++)
    if (has_length(cut, x->dims[axis]) && !is_followed(cut, node, 0, axis))
      return cut_refuse(cut, node, "reshape moves positions out of their axis");
  uint32_t from = batch_axis(cut, x), to = batch_axis(cut, node);
  bool has_none = from == x->rank && to == node->rank;
  if (has_none) return true;
  if (from == x->rank || to == node->rank) return refuse_batch(cut, node);
  const Size *before = elements_before(cut->graph->sizes, x, from);
  if (before && before == elements_before(cut->graph->sizes, node, to)) return true;
  return refuse_batch(cut, node);
}

/* Parts along other axes are joined position by position. Along the positions themselves, what comes behind the first
 * part would stand at another coordinate at every length. */
static bool concat_is_sound(Cut *cut, const Node *node) {
  uint32_t axis = (uint32_t)node->attr.axis;
  for (size_t i = 0; i < node->inputs.n; i++) {
    if (has_batch(cut, input(node, i)->dims[axis])) return refuse_batch(cut, node);
    if (has_length(cut, input(node, i)->dims[axis]))
      return cut_refuse(cut, node, "concat along the positions: they can only be followed where they stand");
  }
  return true;
}

/* Picks elements along an axis, which could be any position's. */
static bool along_is_sound(Cut *cut, const Node *node) {
  uint32_t axis = (uint32_t)node->attr.axis;
  for (size_t i = 0; i < node->inputs.n; i++)
    if (matters(cut, input(node, i)->dims[axis]) || matters(cut, node->dims[axis]))
      return cut_refuse(cut, node, "%s along the positions needs more than its own", op_table[node->op].name);
  return true;
}

enum { MOST_WINDOW = 4096 }; /* rows that a step keeps for a shift: beyond, a state would be larger than a cache */

static bool shift_is_sound(Cut *cut, const Node *node) {
  int64_t n = 0;
  size_is_const(node->attr.size, &n);
  if (n < 0) return cut_refuse(cut, node, "shift moves later positions to earlier ones");
  if (n <= MOST_WINDOW) return true;
  return cut_refuse(cut, node, "shift by %lld positions would keep as many rows; %d are kept at most", (long long)n,
                    MOST_WINDOW);
}

/* What goes on from one position to the next needs the state behind the one before, and nothing of later ones. Two axes
 * of positions are refused: what is new along one of them would need the states of all positions along the other. */
static bool carried_is_sound(Cut *cut, const Node *node) {
  const uint32_t axis = node->op == OP_LINEAR_ATTENTION ? node->rank - 2u : (uint32_t)node->attr.axis;
  const char *name = op_table[node->op].name;
  if (has_batch(cut, node->dims[axis])) return refuse_batch(cut, node);
  if (carried_axis(cut, node) < 0) return true;
  if (node->attr.has_initial) return cut_refuse(cut, node, "%s begins with a state that is given", name);
  if (depends_on(cut, node, ON_TOKENS) && length_axes(cut, node) != 1u << axis)
    return cut_refuse(cut, node, "%s along the positions of a value that has two axes of them", name);
  return node->op != OP_SHIFT || shift_is_sound(cut, node);
}

/* Operations with rules of their own come first; the others are sound if their operands agree along every axis that is
 * followed and are neutral along every axis that is not. */
bool node_is_sound(Cut *cut, const Node *node) {
  if (!axes_are_sound(cut, node) || !sources_are_sound(cut, node)) return false;
  if (op_table[node->op].category == CATEGORY_SOURCE) return true;
  if (node->attr.expr || node->op == OP_ATTENTION || node->op == OP_ATTENTION_WEIGHTS || node->op == OP_NORM ||
      node->op == OP_REDUCE || node->op == OP_POINTWISE || node->op == OP_MATMUL_FUSED)
    return cut_refuse(cut, node, "%s was fused already", op_table[node->op].name);
  if (node->op == OP_SLICE) return slice_is_sound(cut, node);
  if (node->op == OP_RESHAPE) return reshape_is_sound(cut, node);
  bool is_along = node->op == OP_TAKE || node->op == OP_EVERY || node->op == OP_TOPK;
  bool may_carry = node->op == OP_SHIFT || node->op == OP_CUMSUM || node->op == OP_LINEAR_ATTENTION;
  if (is_along && !along_is_sound(cut, node)) return false;
  if (may_carry && !carried_is_sound(cut, node)) return false;
  if (node->op == OP_CONCAT && !concat_is_sound(cut, node)) return false;
  return operands_agree(cut, node) && contractions_are_sound(cut, node);
}

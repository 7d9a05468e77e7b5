/* linear_attention: queries, keys and values whose memory is a state.
 *
 * In: tensors of the language. Out: a node. Refuses operands that are no f32 matrices, columns and steps that do not
 * agree, widths that only a run knows, factors without an axis for their columns, and what would mix the items of a
 * ragged batch. */
#include "elaborate/operators.h"
#include "elaborate/primitives.h"
#include "elaborate/tensors.h"

enum { Q, K, V, DECAY, BETA, N_OPERANDS };

static const char *const operand_names[N_OPERANDS] = {"q", "k", "v", "decay", "beta"};

static const Size *last(const Node *x, uint32_t i) { return x->dims[x->rank - i]; }

/* The operands that were given; false after an error. */
static bool take_operands(Elaborator *e, const PrimitiveCall *call, Node **xs) {
  for (uint32_t i = 0; i < N_OPERANDS; i++) {
    xs[i] = NULL;
    if (i >= DECAY && call->arguments[i].kind == VALUE_NONE) continue;
    xs[i] = tensor_of(e, call->arguments[i], F32, operand_names[i], " of linear_attention");
    if (!xs[i]) return false;
    if (xs[i]->rank < 2) {
      fail(e, DIAG_SHAPE, "linear_attention: %s is %T, but needs an axis of steps and one of columns%s",
           operand_names[i], xs[i], i < DECAY ? "" : i == DECAY ? ": decay[..., none]" : ": beta[..., none]");
      return false;
    }
    if (!within_items(e, "linear_attention", 2, xs[i]->dims + xs[i]->rank - 2)) return false;
  }
  return true;
}

static bool is_width(Elaborator *e, const char *what, const Node *x) {
  int64_t width;
  if (!size_is_const(last(x, 1), &width)) {
    fail(e, DIAG_SHAPE, "linear_attention: %s, must be known when compiling, not %Z", what, last(x, 1));
    return false;
  }
  if (width < 1) fail(e, DIAG_SHAPE, "linear_attention: %s, must be 1 or more", what);
  return width >= 1;
}

static bool widths_fit(Elaborator *e, Node *const *xs) {
  if (!is_width(e, "n, the columns of k", xs[K]) || !is_width(e, "d, the columns of v", xs[V])) return false;
  if (!need_same(e, last(xs[Q], 1), last(xs[K], 1),
                 "linear_attention: q has %Z columns, k has %Z: both need one for each row of the state",
                 last(xs[Q], 1), last(xs[K], 1)))
    return false;
  return need_same(e, last(xs[Q], 2), last(xs[K], 2), "linear_attention: q has %Z steps, k has %Z", last(xs[Q], 2),
                   last(xs[K], 2)) &&
         need_same(e, last(xs[K], 2), last(xs[V], 2), "linear_attention: k has %Z steps, v has %Z", last(xs[K], 2),
                   last(xs[V], 2));
}

/* One column, or as many as `of` has. */
static bool factor_fits(Elaborator *e, uint32_t which, const Node *x, const Node *of) {
  if (size_equals(last(x, 1), 1) || last(x, 1) == last(of, 1)) return true;
  const char *name = operand_names[which];
  if (!size_is_const(last(x, 1), NULL) || last(x, 1) == last(of, 2)) {
    fail(e, DIAG_SHAPE, "linear_attention: %s is %T, but needs an axis for its columns: %s[..., none]", name, x, name);
  } else if (which == DECAY) {
    fail(e, DIAG_SHAPE,
         "linear_attention: decay has %Z columns: 1 (a factor for each step) or %Z (one for each column of k)",
         last(x, 1), last(of, 1));
  } else {
    fail(e, DIAG_SHAPE, "linear_attention: beta has %Z columns: 1 or %Z, as v", last(x, 1), last(of, 1));
  }
  return false;
}

/* Of q, k and v: a number, if one of them has a number there. */
static const Size *steps_of(Node *const *xs) {
  for (uint32_t i = Q; i <= V; i++)
    if (size_is_const(last(xs[i], 2), NULL)) return last(xs[i], 2);
  return last(xs[Q], 2);
}

Value primitive_linear_attention(Elaborator *e, const PrimitiveCall *call) {
  Node *xs[N_OPERANDS], *given[N_OPERANDS];
  Shape shapes[N_OPERANDS], result;
  uint32_t n = 0;
  if (!take_operands(e, call, xs) || !widths_fit(e, xs)) return POISON;
  if (xs[DECAY] && !factor_fits(e, DECAY, xs[DECAY], xs[K])) return POISON;
  if (xs[BETA] && !factor_fits(e, BETA, xs[BETA], xs[V])) return POISON;
  for (uint32_t i = 0; i < N_OPERANDS; i++) {
    if (!xs[i]) continue;
    shapes[n] = leading(xs[i], 1);
    if (i <= V) shapes[n].dims[shapes[n].rank - 1] = steps_of(xs);
    given[n++] = xs[i];
  }
  if (!broadcast_shapes(e, "linear_attention", n, shapes, given, &result)) return POISON;
  const Size *steps = result.dims[result.rank - 1];
  if (!need_same(e, steps, steps_of(xs), "linear_attention: decay or beta has %Z steps, q has %Z", steps, steps_of(xs)))
    return POISON;
  Node *node = made(e, build_linear_attention(build_here(e), xs, xs[DECAY], xs[BETA]));
  return value_tensor(with_known_dims(e, node, result.rank, result.dims));
}

/* The third answer of the incremental form: position t alone, and a state.
 *
 * In: uses of the form USE_CARRIED. Out: inputs of the step that hold states, the new positions made of them by
 * operations that exist, and outputs with what the states become. Refused: sizes that become too large as polynomials.
 *
 * linear_attention goes on from the state that it would have had. Shifts of a value share one window, its last rows:
 * the shifts are slices of the window with the new rows behind it, as they are slices of zeros with all rows behind
 * them. A running sum begins with the sum so far. So bits are the model's: the same numbers meet in the same order. */
#include <string.h>

#include "incremental/incremental_states.h"

static const Node *input(const Node *node, size_t i) { return node->inputs.items[i]; }

static bool is_carried(const Cut *cut, const Node *node) {
  const Uses *uses = &cut->uses[node->id];
  for (size_t i = 0; i < uses->items.n; i++)
    if (uses->items.items[i].form == USE_CARRIED) return true;
  return false;
}

/* How far a shift looks back; sound.c has bounded it. */
static int64_t reach_of(const Node *shift) {
  int64_t n = 0;
  size_is_const(shift->attr.size, &n);
  return n;
}

/* As many rows as the farthest shift of the value needs; along its one axis of positions. */
static int64_t window_rows(const Cut *cut, const Node *x) {
  int64_t rows = 0;
  for (size_t i = 0; i < x->users.n; i++) {
    const Node *user = x->users.items[i];
    if (user->op == OP_SHIFT && is_carried(cut, user) && reach_of(user) > rows) rows = reach_of(user);
  }
  return rows;
}

static uint32_t axis_of(const Stepper *s, const Node *node) { return (uint32_t)carried_axis(s->cut, node); }

// ---- inputs ----

/* [.., n, d]; a window [.., rows, ..]; a sum [.., 1, ..]. */
static bool state_dims(const Stepper *s, const Node *node, const Carried *c, const Size **dims) {
  if (!step_dims(s, c->of, 0, dims)) return false;
  int64_t n = c->is_window ? c->rows : 1;
  if (node->op == OP_LINEAR_ATTENTION) size_is_const(input(node, 1)->dims[input(node, 1)->rank - 1], &n);
  dims[axis_of(s, node)] = size_const(s->graph->sizes, n);
  return true;
}

/* What a node that is carried goes on from; NULL: a shift by 0 goes on from nothing. */
static Carried **place_of(const Stepper *s, const Node *node) {
  if (node->op != OP_SHIFT) return &s->states[node->id];
  return reach_of(node) ? &s->windows[input(node, 0)->id] : NULL;
}

static bool add_state(Stepper *s, Incremental *result, const Node *node) {
  Carried **place = place_of(s, node);
  if (!place || *place) return true;
  Carried *c = ARENA_NEW(s->cut->scratch, Carried);
  const bool is_window = node->op == OP_SHIFT, is_sum = node->op == OP_CUMSUM;
  *c = (Carried){.of = is_window ? input(node, 0) : node, .is_window = is_window};
  if (is_window) c->rows = window_rows(s->cut, c->of);
  const Size *dims[MAX_RANK];
  if (!state_dims(s, node, c, dims)) return false;
  const Role role = is_sum ? (Role){ROLE_RUNNING_SUM, result->n_sums++} : (Role){ROLE_STATE, result->n_states++};
  c->input = step_input(s, node, role, dims);
  *(s->last ? &s->last->next : &s->first) = c;
  s->last = *place = c;
  return true;
}

bool add_states(Stepper *s, Incremental *result) {
  for (const Node *node = s->cut->graph->first; node; node = node->next)
    if (is_carried(s->cut, node) && !add_state(s, result, node)) return false;
  return true;
}

// ---- new positions ----

/* Elements [start, start + n) along the axis. */
static Node *rows_of(const Stepper *s, Builder *b, Node *x, uint32_t axis, const Size *start, const Size *n) {
  const Size *starts[MAX_RANK], *dims[MAX_RANK];
  for (uint32_t i = 0; i < x->rank; i++) {
    starts[i] = i == axis ? start : size_const(s->graph->sizes, 0);
    dims[i] = i == axis ? n : x->dims[i];
  }
  return build_slice(b, x, starts, dims);
}

static Node *build_shifted(Stepper *s, Builder *b, const Node *node, const Use *use) {
  const uint32_t axis = axis_of(s, node);
  Node *fresh = step_operand(s, node, 0, use);
  if (!reach_of(node)) return fresh;
  Carried *c = *place_of(s, node);
  SizeTable *sizes = s->graph->sizes;
  if (!c->joined) {
    c->joined = build_concat(b, 2, (Node *[]){c->input, fresh}, (int32_t)axis);
    c->output = rows_of(s, b, c->joined, axis, s->fresh, size_const(sizes, c->rows));
  }
  return rows_of(s, b, c->joined, axis, size_const(sizes, c->rows - reach_of(node)), s->fresh);
}

static Node *build_sums(Stepper *s, Builder *b, const Node *node, const Use *use) {
  const uint32_t axis = axis_of(s, node);
  Carried *c = *place_of(s, node);
  const Size *one = size_const(s->graph->sizes, 1);
  Node *fresh = step_operand(s, node, 0, use);
  Node *sums = build_cumsum(b, build_concat(b, 2, (Node *[]){c->input, fresh}, (int32_t)axis), (int32_t)axis);
  c->output = rows_of(s, b, sums, axis, s->fresh, one);
  return rows_of(s, b, sums, axis, one, s->fresh);
}

static Node *build_recurrence(Stepper *s, Builder *b, const Node *node, const Use *use, const Size *const *dims) {
  Carried *c = *place_of(s, node);
  const size_t n = node->inputs.n;
  Node **operands = ARENA_ARRAY(s->cut->scratch, Node *, n + 1);
  for (size_t i = 0; i < n; i++) operands[i] = step_operand(s, node, i, use);
  operands[n] = c->input;
  Node *copy = graph_add(s->graph, NULL, node->op, node->dtype, node->rank, dims, (uint32_t)n + 1, operands,
                         node->origin);
  copy->attr = node->attr;
  copy->attr.has_initial = true;
  c->output = build_linear_attention_state(b, copy);
  return copy;
}

Node *build_carried(Stepper *s, Builder *b, const Node *node, const Use *use, const Size *const *dims) {
  if (node->op == OP_SHIFT) return build_shifted(s, b, node, use);
  return node->op == OP_CUMSUM ? build_sums(s, b, node, use) : build_recurrence(s, b, node, use, dims);
}

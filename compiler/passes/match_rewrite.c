/* In: nodes to put views on, to replace, to delete, to sort. Out: the graph rewritten, without chains of views. */
#include <string.h>

#include "passes/match.h"

static bool same_dims(const Node *x, uint32_t rank, const Size *const *dims) {
  return x->rank == rank && !memcmp(x->dims, dims, rank * sizeof *dims);
}

Node *match_reshape(Builder *b, Node *x, uint32_t rank, const Size *const *dims) {
  while (x->op == OP_RESHAPE && !same_dims(x, rank, dims)) x = x->inputs.items[0];
  if (same_dims(x, rank, dims)) return x;
  if (x->op == OP_FULL && x->dtype == DTYPE_F32) return build_full(b, x->attr.number, rank, dims);
  return build_reshape(b, x, rank, dims);
}

Node *match_permute(Builder *b, Node *x, const uint8_t *axes) {
  uint8_t composed[MAX_RANK];
  memcpy(composed, axes, x->rank);
  while (x->op == OP_PERMUTE) {
    for (uint32_t i = 0; i < x->rank; i++) composed[i] = x->attr.axes[composed[i]];
    x = x->inputs.items[0];
  }
  bool identity = true;
  for (uint32_t i = 0; i < x->rank; i++) identity &= composed[i] == i;
  return identity ? x : build_permute(b, x, composed);
}

Node *match_swap_last_two(Builder *b, Node *x) {
  uint8_t axes[MAX_RANK];
  for (uint32_t i = 0; i < x->rank; i++) axes[i] = (uint8_t)i;
  axes[x->rank - 1] = (uint8_t)(x->rank - 2);
  axes[x->rank - 2] = (uint8_t)(x->rank - 1);
  return match_permute(b, x, axes);
}

Node *match_slice(Builder *b, Node *x, uint32_t axis, int64_t start, int64_t n) {
  SizeTable *sizes = b->graph->sizes;
  const Size *starts[MAX_RANK], *dims[MAX_RANK];
  for (uint32_t i = 0; i < x->rank; i++) {
    starts[i] = size_const(sizes, 0);
    dims[i] = x->dims[i];
  }
  if (!start && size_equals(dims[axis], n)) return x;
  starts[axis] = size_const(sizes, start);
  dims[axis] = size_const(sizes, n);
  return build_slice(b, x, starts, dims);
}

void match_delete_unused(Pass *pass, Node *node) {
  VEC(Node *) pending = {0};
  vec_push(pass->scratch, &pending, node);
  while (pending.n) {
    Node *next = pending.items[--pending.n];
    if (next->deleted || next->op == OP_INPUT || next->users.n || graph_is_output(pass->graph, next)) continue;
    for (size_t i = 0; i < next->inputs.n; i++) vec_push(pass->scratch, &pending, next->inputs.items[i]);
    graph_delete(pass->graph, next);
  }
}

void match_replace(Pass *pass, Node *node, Node *by) {
  graph_replace_uses(pass->graph, node, by);
  match_delete_unused(pass, node);
}

// ---- order ----

/* Whether a node may be placed; else its first input that isn't is pending. */
static Node *missing_input(const Node *node, const bool *placed) {
  for (size_t i = 0; i < node->inputs.n; i++)
    if (!placed[node->inputs.items[i]->id]) return node->inputs.items[i];
  return NULL;
}

void match_sort(Pass *pass) {
  bool *placed = ARENA_ARRAY(pass->scratch, bool, pass->graph->next_id);
  VEC(Node *) pending = {0};
  for (Node *node = pass->graph->first; node; node = node->next) {
    if (placed[node->id]) continue;
    vec_push(pass->scratch, &pending, node);
    while (pending.n) {
      Node *top = pending.items[pending.n - 1];
      Node *missing = missing_input(top, placed);
      if (missing) {
        vec_push(pass->scratch, &pending, missing);
        continue;
      }
      if (top != node && !placed[top->id]) graph_move_before(pass->graph, top, node);
      placed[top->id] = true;
      pending.n--;
    }
  }
}

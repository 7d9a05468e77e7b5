/* Shapes that the later stages take.
 *
 *   gather of a table [n, a, b]       gather of [n, a*b], reshaped
 *   softmax along another axis        permuted, along the last axis, permuted back
 *   linear with a computed weight     matmul with the weight transposed: only weights that are known are packed
 *
 * Always legal: views around the same operation. */
#include <string.h>

#include "passes/match.h"

static Node *lower_gather(Pass *pass, Builder *b, Node *node) {
  Node *table = node->inputs.items[0];
  if (table->rank == 2) return NULL;
  const Size *width = size_const(pass->graph->sizes, 1);
  for (uint32_t i = 1; i < table->rank && width; i++) width = size_mul(pass->graph->sizes, width, table->dims[i]);
  if (!width) return NULL;
  Node *flat = match_reshape(b, table, 2, (const Size *const[]){table->dims[0], width});
  return build_reshape(b, build_gather(b, flat, node->inputs.items[1]), node->rank, node->dims);
}

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

static Node *lower_linear(Pass *pass, Builder *b, Node *node) {
  Node *x = node->inputs.items[0], *w = node->inputs.items[1];
  if (match_is_static(pass, w) || node->attr.expr) return NULL;
  Node *transposed = match_swap_last_two(b, w);
  if (x->rank > 1) return build_matmul(b, x, transposed);
  const Size *one = size_const(pass->graph->sizes, 1);
  Node *row = build_reshape(b, x, 2, (const Size *const[]){one, x->dims[0]});
  return build_reshape(b, build_matmul(b, row, transposed), 1, node->dims);
}

bool pass_lower_shapes(Pass *pass) {
  static Node *(*const rules[N_OPS])(Pass *, Builder *, Node *) = {[OP_GATHER] = lower_gather,
                                                                   [OP_SOFTMAX] = lower_softmax,
                                                                   [OP_LOG_SOFTMAX] = lower_softmax,
                                                                   [OP_LINEAR] = lower_linear};
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

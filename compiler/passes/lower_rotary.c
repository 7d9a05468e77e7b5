/* Rotary positions: a table of cosines and sines, and products of the two halves (or neighbours) of the last axis.
 *
 *   %3 = rotary %x, %pos      %3 = rotary_table %pos                       [..., 2, h/2]
 *                             %4 = reshape (slice %3, row 0)               cos [..., h/2]
 *                             %5 = reshape (slice %3, row 1)               sin
 *                             %6 = concat (a cos - b sin), (b cos + a sin)     a, b: the halves of x
 *
 * Neighbours: x is seen as [..., h/2, 2], so a and b are its columns. Equal tables of several layers are merged by cse.
 * Always legal; plan has no rotary. */
#include <string.h>

#include "passes/match.h"

static Node *rotary_table(Pass *pass, Node *rotary, const Size *half) {
  Node *pos = rotary->inputs.items[1];
  const Size *dims[MAX_RANK];
  memcpy(dims, pos->dims, sizeof dims);
  dims[pos->rank] = size_const(pass->graph->sizes, 2);
  dims[pos->rank + 1u] = half;
  Node *table = graph_add(pass->graph, rotary, OP_ROTARY_TABLE, DTYPE_F32, pos->rank + 2u, dims, 1, &pos, rotary->origin);
  table->attr.base = rotary->attr.base;
  return table;
}

/* Row `row` of the table: [..., h/2], and for neighbours [..., h/2, 1]. */
static Node *table_row(Builder *b, Node *table, int64_t row, bool interleaved) {
  const Size *dims[MAX_RANK];
  uint32_t rank = table->rank - 1u;
  Node *slice = match_slice(b, table, table->rank - 2u, row, 1);
  memcpy(dims, table->dims, sizeof dims);
  dims[rank - 1] = dim_from_end(table, 0);
  if (interleaved) dims[rank++] = size_const(b->graph->sizes, 1);
  return build_reshape(b, slice, rank, dims);
}

/* x [..., n] or [..., n/2, 2] in two halves along its last axis, rotated, put together again. */
static Node *rotate(Builder *b, Node *x, int64_t half, Node *cosines, Node *sines) {
  Node *a = match_slice(b, x, x->rank - 1u, 0, half), *c = match_slice(b, x, x->rank - 1u, half, half);
  Node *a_cos = build_binary(b, OP_MUL, a, cosines), *c_sin = build_binary(b, OP_MUL, c, sines);
  Node *c_cos = build_binary(b, OP_MUL, c, cosines), *a_sin = build_binary(b, OP_MUL, a, sines);
  Node *first = build_binary(b, OP_SUB, a_cos, c_sin), *second = build_binary(b, OP_ADD, c_cos, a_sin);
  return build_concat(b, 2, (Node *const[]){first, second}, x->rank - 1);
}

static void lower(Pass *pass, Node *node) {
  Node *x = node->inputs.items[0];
  bool interleaved = node->attr.interleaved;
  int64_t width;
  size_is_const(dim_from_end(x, 0), &width);
  Builder b = pass_builder(pass, node, node);
  Node *table = rotary_table(pass, node, size_const(pass->graph->sizes, width / 2));
  Node *cosines = table_row(&b, table, 0, interleaved), *sines = table_row(&b, table, 1, interleaved);
  Node *by;
  if (interleaved) {
    const Size *dims[MAX_RANK];
    memcpy(dims, x->dims, sizeof dims);
    dims[x->rank - 1] = size_const(pass->graph->sizes, width / 2);
    dims[x->rank] = size_const(pass->graph->sizes, 2);
    by = rotate(&b, build_reshape(&b, x, x->rank + 1u, dims), 1, cosines, sines);
    by = build_reshape(&b, by, node->rank, node->dims);
  } else {
    by = rotate(&b, x, width / 2, cosines, sines);
  }
  match_replace(pass, node, by);
}

bool pass_lower_rotary(Pass *pass) {
  bool changed = false;
  for (Node *node = pass->graph->first, *next; node; node = next) {
    next = node->next;
    if (node->op != OP_ROTARY || match_is_static(pass, node)) continue;
    lower(pass, node);
    changed = true;
  }
  return changed;
}

/* Rotations of neighbouring heads become one.
 *
 *   %4 = slice %p : [b, t, 4*h]                              %4 = slice %p : [b, t, 6*h]
 *   %5 = rotary (permute (reshape %4 : [b, t, 4, h])), %pos  %5 = rotary (permute (reshape %4 : [b, t, 6, h])), %pos
 *   %6 = slice %p : [b, t, 2*h], right behind                %6 = slice %5 : heads 0 to 4
 *   %7 = rotary (permute (reshape %6 : [b, t, 2, h])), %pos  %7 = slice %5 : heads 4 to 6
 *
 * Legal:
 *   1. both are columns of one tensor, one right behind the other, split into heads of one width in the same way;
 *   2. positions, base and layout are the same, and the positions are those of every head.
 * Runs behind fuse-qkv, which made queries and keys columns of one tensor. Pays: one operation less per layer. */
#include <string.h>

#include "passes/match.h"

typedef struct Rotation {
  Node *rotary;
  const Node *permute, *reshape, *slice; /* from the heads back to the columns */
  int64_t from, columns, heads;
} Rotation;

static bool only_last_axis_is_cut(const Node *slice) {
  const Node *x = slice->inputs.items[0];
  return !memcmp(slice->dims, x->dims, (slice->rank - 1u) * sizeof *slice->dims);
}

/* [..., t, n*h] -> [..., t, n, h] */
static bool splits_last_axis(const Node *reshape) {
  const Node *x = reshape->inputs.items[0];
  return reshape->rank == x->rank + 1 && !memcmp(reshape->dims, x->dims, (x->rank - 1u) * sizeof *x->dims);
}

static bool match_rotation(Node *rotary, Rotation *r) {
  r->rotary = rotary;
  r->permute = rotary->inputs.items[0];
  if (r->permute->op != OP_PERMUTE || r->permute->rank < 4) return false;
  r->reshape = r->permute->inputs.items[0];
  uint32_t rank = r->permute->rank;
  if (r->reshape->op != OP_RESHAPE || !splits_last_axis(r->reshape)) return false;
  if (r->permute->attr.axes[rank - 3] != rank - 2 || r->permute->attr.axes[rank - 1] != rank - 1) return false;
  r->slice = r->reshape->inputs.items[0];
  if (r->slice->op != OP_SLICE || !only_last_axis_is_cut(r->slice)) return false;
  const Node *pos = rotary->inputs.items[1];
  bool per_head = pos->rank >= 2 && !dim_is_one(dim_from_end(pos, 1));
  return !per_head && size_is_const(r->slice->attr.starts[r->slice->rank - 1], &r->from) &&
         size_is_const(dim_from_end(r->slice, 0), &r->columns) && size_is_const(dim_from_end(r->reshape, 1), &r->heads);
}

static bool is_behind(const Rotation *a, const Rotation *b) {
  const Node *x = a->rotary, *y = b->rotary;
  return a->slice->inputs.items[0] == b->slice->inputs.items[0] && a->from + a->columns == b->from &&
         dim_from_end(x, 0) == dim_from_end(y, 0) && x->inputs.items[1] == y->inputs.items[1] &&
         x->attr.base == y->attr.base && x->attr.interleaved == y->attr.interleaved && x->rank == y->rank &&
         !memcmp(a->permute->attr.axes, b->permute->attr.axes, x->rank);
}

static void merge(Pass *pass, const Rotation *a, const Rotation *b, Node *before) {
  Builder build = pass_builder(pass, before, a->rotary);
  Node *packed = a->slice->inputs.items[0];
  Node *columns = match_slice(&build, packed, packed->rank - 1u, a->from, a->columns + b->columns);
  const Size *dims[MAX_RANK];
  memcpy(dims, a->reshape->dims, sizeof dims);
  uint32_t rank = a->reshape->rank;
  dims[rank - 2] = size_const(pass->graph->sizes, a->heads + b->heads);
  Node *heads = build_permute(&build, build_reshape(&build, columns, rank, dims), a->permute->attr.axes);
  Node *rotated =
      build_rotary(&build, heads, a->rotary->inputs.items[1], a->rotary->attr.base, a->rotary->attr.interleaved);
  Node *first = match_slice(&build, rotated, rank - 3u, 0, a->heads);
  Node *second = match_slice(&build, rotated, rank - 3u, a->heads, b->heads);
  match_replace(pass, a->rotary, first);
  match_replace(pass, b->rotary, second);
}

bool pass_fuse_rotary(Pass *pass) {
  VEC(Rotation) found = {0};
  Rotation rotation;
  for (Node *node = pass->graph->first; node; node = node->next)
    if (node->op == OP_ROTARY && match_rotation(node, &rotation)) vec_push(pass->scratch, &found, rotation);
  bool changed = false;
  for (size_t i = 0; i < found.n; i++) {
    for (size_t j = 0; j < found.n; j++) {
      const Rotation *a = &found.items[i], *b = &found.items[j];
      if (a->rotary->deleted || b->rotary->deleted || !is_behind(a, b)) continue;
      merge(pass, a, b, i < j ? a->rotary : b->rotary);
      changed = true;
    }
  }
  return changed;
}

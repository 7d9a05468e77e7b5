/* Rules of views: composed with the view below, left out where they change nothing; slices of concatenations and
 * concatenations of slices give back the parts and the whole. */
#include <string.h>

#include "passes/canonicalize.h"

Node *rule_reshape(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  Node *x = node->inputs.items[0];
  if (!node_same_shape(x, node) && x->op != OP_RESHAPE) return NULL;
  return match_reshape(b, x, node->rank, node->dims);
}

static bool is_identity(const Node *permute) {
  for (uint32_t i = 0; i < permute->rank; i++)
    if (permute->attr.axes[i] != i) return false;
  return true;
}

Node *rule_permute(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  Node *x = node->inputs.items[0];
  if (!is_identity(node) && x->op != OP_PERMUTE) return NULL;
  return match_permute(b, x, node->attr.axes);
}

// ---- slices ----

static bool starts_at_zero(const Node *slice) {
  for (uint32_t i = 0; i < slice->rank; i++)
    if (!size_equals(slice->attr.starts[i], 0)) return false;
  return true;
}

static Node *slice_of_slice(Builder *b, const Node *node, const Node *inner) {
  const Size *starts[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++) {
    starts[i] = size_add(b->graph->sizes, node->attr.starts[i], inner->attr.starts[i]);
    if (!starts[i]) return NULL;
  }
  return build_slice(b, inner->inputs.items[0], starts, node->dims);
}

/* The part of a concatenation that holds all of the slice. */
static Node *slice_of_concat(Builder *b, const Node *node, const Node *concat) {
  uint32_t axis = (uint32_t)concat->attr.axis;
  int64_t start, length, begin = 0, part;
  if (!size_is_const(node->attr.starts[axis], &start) || !size_is_const(node->dims[axis], &length)) return NULL;
  for (size_t i = 0; i < concat->inputs.n; i++, begin += part) {
    Node *x = concat->inputs.items[i];
    if (!size_is_const(x->dims[axis], &part)) return NULL;
    if (start < begin || start + length > begin + part) continue;
    const Size *starts[MAX_RANK];
    memcpy(starts, node->attr.starts, sizeof starts);
    starts[axis] = size_const(b->graph->sizes, start - begin);
    return build_slice(b, x, starts, node->dims);
  }
  return NULL;
}

Node *rule_slice(Pass *pass, Builder *b, Node *node) {
  (void)pass;
  Node *x = node->inputs.items[0];
  if (starts_at_zero(node) && node_same_shape(x, node)) return x;
  if (x->op == OP_SLICE) return slice_of_slice(b, node, x);
  if (x->op == OP_CONCAT) return slice_of_concat(b, node, x);
  return NULL;
}

// ---- concatenations ----

/* Whether `next` continues the slice `x` along `axis`, all other axes being the same. */
static bool continues(SizeTable *sizes, const Node *x, const Node *next, uint32_t axis) {
  if (x->op != OP_SLICE || next->op != OP_SLICE || x->inputs.items[0] != next->inputs.items[0]) return false;
  for (uint32_t i = 0; i < x->rank; i++) {
    if (i == axis) continue;
    if (x->attr.starts[i] != next->attr.starts[i] || x->dims[i] != next->dims[i]) return false;
  }
  return size_add(sizes, x->attr.starts[axis], x->dims[axis]) == next->attr.starts[axis];
}

static Node *joined(Builder *b, const Node *x, const Node *next, uint32_t axis) {
  const Size *dims[MAX_RANK];
  memcpy(dims, x->dims, sizeof dims);
  dims[axis] = size_add(b->graph->sizes, x->dims[axis], next->dims[axis]);
  return build_slice(b, x->inputs.items[0], x->attr.starts, dims);
}

Node *rule_concat(Pass *pass, Builder *b, Node *node) {
  VEC(Node *) parts = {0};
  uint32_t axis = (uint32_t)node->attr.axis;
  bool changed = node->inputs.n == 1;
  for (size_t i = 0; i < node->inputs.n; i++) {
    Node *x = node->inputs.items[i];
    Node **last = parts.n ? &parts.items[parts.n - 1] : NULL;
    if (last && continues(b->graph->sizes, *last, x, axis)) {
      Node *before = *last;
      *last = joined(b, before, x, axis);
      match_delete_unused(pass, before);
      changed = true;
    } else if (x->op == OP_CONCAT && x->attr.axis == node->attr.axis) {
      for (size_t j = 0; j < x->inputs.n; j++) vec_push(pass->scratch, &parts, x->inputs.items[j]);
      changed = true;
    } else {
      vec_push(pass->scratch, &parts, x);
    }
  }
  if (!changed) return NULL;
  return parts.n == 1 ? parts.items[0] : build_concat(b, (uint32_t)parts.n, parts.items, node->attr.axis);
}

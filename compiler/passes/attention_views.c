/* In: a product next to a reshape that leaves the last two axes as they are. Out: the same product on the other side
 * of the reshape. Refuses operands that broadcast: regrouped axes could not. */
#include "passes/attention_views.h"

#include <string.h>

static bool regroups(const Node *reshape) {
  const Node *x = reshape->inputs.items[0];
  return x->rank >= 2 && reshape->rank >= 2 && dim_from_end(x, 0) == dim_from_end(reshape, 0) &&
         dim_from_end(x, 1) == dim_from_end(reshape, 1);
}

/* The axes before the last two are exactly those of `like`. */
static bool has_lead_of(const Node *x, const Node *like) {
  return x->rank == like->rank && !memcmp(x->dims, like->dims, (like->rank - 2u) * sizeof *x->dims);
}

static bool swaps_last_two(const Node *node) {
  if (node->op != OP_PERMUTE || node->attr.axes[node->rank - 1] + 2 != node->rank) return false;
  for (uint32_t i = 0; i + 2u < node->rank; i++)
    if (node->attr.axes[i] != i) return false;
  return true;
}

/* x with the axes of `like` before its last two. Keys stay transposed last, so that attention finds them as they are. */
static Node *with_lead_of(Builder *b, Node *x, const Node *like) {
  if (swaps_last_two(x)) return match_swap_last_two(b, with_lead_of(b, x->inputs.items[0], like));
  const Size *dims[MAX_RANK];
  memcpy(dims, like->dims, sizeof dims);
  dims[like->rank - 1] = dim_from_end(x, 0);
  dims[like->rank - 2] = dim_from_end(x, 1);
  return match_reshape(b, x, like->rank, dims);
}

Node *attention_sink_reshape(Pass *pass, Node *reshape) {
  Node *product = reshape->inputs.items[0];
  if (product->op != OP_MATMUL || !regroups(reshape) || match_only_user(pass, product) != reshape) return reshape;
  Node *q = product->inputs.items[0], *k = product->inputs.items[1];
  if (!has_lead_of(q, product) || !has_lead_of(k, product)) return reshape;
  Builder b = pass_builder(pass, reshape, product);
  q = with_lead_of(&b, q, reshape);
  k = with_lead_of(&b, k, reshape);
  Node *by = build_matmul(&b, q, k);
  match_replace(pass, reshape, by);
  return by;
}

Node *attention_lift_reshape(Pass *pass, Node *matmul) {
  Node *reshape = matmul->inputs.items[0], *v = matmul->inputs.items[1];
  if (reshape->op != OP_RESHAPE || reshape->inputs.items[0]->op != OP_SOFTMAX || !regroups(reshape)) return matmul;
  Node *softmax = reshape->inputs.items[0];
  if (!has_lead_of(v, reshape) || softmax->rank < 2) return matmul;
  Builder b = pass_builder(pass, matmul, matmul);
  Node *by = build_matmul(&b, softmax, with_lead_of(&b, v, softmax));
  match_replace(pass, matmul, match_reshape(&b, by, matmul->rank, matmul->dims));
  return by;
}

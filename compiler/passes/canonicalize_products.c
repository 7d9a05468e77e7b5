/* Rules of products: a product with a weight is a linear, so that its weight is packed once. */
#include "passes/canonicalize.h"

/* The left operand of a product whose zeros are exact: what stands right of them must not be looked at. */
static bool is_softmax(const Node *node) {
  while (op_table[node->op].category == CATEGORY_VIEW) node = node->inputs.items[0];
  return node->op == OP_SOFTMAX || node->op == OP_ATTENTION_WEIGHTS;
}

/* x [..., t, k] @ w [k, n] = linear(x, permute(w)) */
Node *rule_matmul(Pass *pass, Builder *b, Node *node) {
  Node *x = node->inputs.items[0], *w = node->inputs.items[1];
  if (w->rank != 2 || !match_is_static(pass, w) || match_is_static(pass, x) || is_softmax(x)) return NULL;
  return build_linear(b, x, match_swap_last_two(b, w));
}

/* In: the model. Out: which of its products are the scores of an attention that will be fused: a constant factor on their
 * keys becomes one on the scores then. A step must do as the whole model does, or its last bits would be others. */
#include "passes/incremental_parts.h"

static bool weighs_values(const Node *product) {
  const Node *x = product->inputs.items[0];
  while (op_table[x->op].category == CATEGORY_VIEW) x = x->inputs.items[0];
  return x->op == OP_SOFTMAX;
}

bool find_scores_of_attention(Cut *cut, Diag *diag) {
  static const char *const only[] = {"fuse-attention"};
  const PassOptions options = {.level = 2, .only = only, .n_only = 1};
  Graph *tried = graph_clone(cut->scratch, cut->graph); /* with the same ids */
  VEC(const Node *) products = {0};
  VEC(uint32_t) ids = {0};
  for (const Node *node = tried->first; node; node = node->next) {
    if (node->op != OP_MATMUL || weighs_values(node)) continue;
    vec_push(cut->scratch, &products, node);
    vec_push(cut->scratch, &ids, node->id);
  }
  if (products.n && !passes_run(tried, diag, &options, NULL)) return false;
  for (size_t i = 0; i < products.n; i++) cut->is_scores[ids.items[i]] = products.items[i]->deleted;
  return true;
}

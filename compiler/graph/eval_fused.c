/* In: nodes that only exist after fusion. Out: their values, computed as the operations they were made from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/eval_run.h"

bool eval_pointwise_node(const EvalNode *in, Tensor *out) { return eval_expr(in, NULL, out); }

bool eval_reduce_node(const EvalNode *in, Tensor *out) {
  const NodeAttr *attr = &in->node->attr;
  Tensor x = {.dtype = DTYPE_F32, .rank = attr->rank_in};
  for (uint32_t i = 0; i < x.rank; i++) x.dims[i] = eval_size(in->run, attr->dims_in[i]);
  if (!eval_allocate(in->run, in->node, &x)) return false;
  bool ok = eval_expr(in, NULL, &x);
  if (ok) reduce_tensor(attr->reduction, (uint32_t)attr->axis, &x, out);
  free(x.data);
  return ok;
}

bool eval_norm_node(const EvalNode *in, Tensor *out) {
  const NodeAttr *attr = &in->node->attr;
  size_t n = in->node->inputs.n;
  const Tensor *w = attr->has_weight ? in->inputs[n - 1 - attr->has_bias] : NULL;
  const Tensor *b = attr->has_bias ? in->inputs[n - 1] : NULL;
  Tensor x = *out;
  if (!eval_allocate(in->run, in->node, &x)) return false;
  bool ok = eval_expr(in, NULL, &x);
  if (ok) norm_tensor(attr->reduction, attr->eps, &x, w, b, out);
  free(x.data);
  return ok;
}

/* q kT, the expression over it, its softmax: each beside the one before. */
static bool probabilities(const EvalNode *in, Tensor *acc, Tensor *scores, Tensor *weights) {
  if (!eval_allocate(in->run, in->node, acc) || !eval_allocate(in->run, in->node, weights)) return false;
  matmul_transposed(in->inputs[0], in->inputs[1], acc);
  if (!in->node->attr.expr) {
    reduce_tensor(OP_SOFTMAX, acc->rank - 1, acc, weights);
    return true;
  }
  if (!eval_allocate(in->run, in->node, scores) || !eval_expr(in, acc, scores)) return false;
  reduce_tensor(OP_SOFTMAX, acc->rank - 1, scores, weights);
  return true;
}

bool eval_attention(const EvalNode *in, Tensor *out) {
  const Tensor *k = in->inputs[1];
  Tensor acc = *out;
  acc.dims[acc.rank - 1] = k->dims[k->rank - 2];
  acc.data = NULL;
  Tensor scores = acc, weights = acc;
  bool ok = probabilities(in, &acc, &scores, &weights);
  if (ok) matmul_tensor(&weights, in->inputs[2], true, out);
  free(acc.data);
  free(scores.data);
  bool wanted = false;
  for (size_t i = 0; i < in->node->users.n; i++) wanted |= in->node->users.items[i]->op == OP_ATTENTION_WEIGHTS;
  if (ok && wanted) in->run->probabilities[in->node->id] = weights;
  else free(weights.data);
  return ok;
}

bool eval_attention_weights(const EvalNode *in, Tensor *out) {
  const Tensor *kept = &in->run->probabilities[in->node->inputs.items[0]->id];
  size_t bytes = (size_t)tensor_elements(out) * sizeof(float);
  if (bytes) memcpy(out->data, kept->data, bytes);
  return true;
}

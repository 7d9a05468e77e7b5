/* In: a graph without any attention that could still be fused. Out: records of what looks like one. See
 * attention_refusals.h. */
#include "passes/attention_refusals.h"

#include "passes/match.h"

/* In the graph that is left, the product of probabilities with values stands behind softmax directly or not at all. A
 * product that is reached from a product of queries and keys in another way is refused, at the operation that is in the
 * way:
 *
 *   %5 = softmax %4, axis=3
 *   %6 = mul %5, %keep          "what softmax gives goes through mul before the product with the values"
 *   %7 = matmul %6, %v
 *
 * Nobody can say for certain that somebody meant an attention. What is looked for is narrow, because
 * --require-fusion=attention makes each of these records an error: two products that are computed in the run, with
 * pointwise work, views and one nonlinearity between them. A product with a weight (a feed-forward layer, a gate of
 * experts) is none of them. */

/* Bounds a walk; a node that is reached twice counts twice. */
enum { MAX_VISITS = 128, MAX_MASKS = 2 };

typedef struct Walk {
  Pass *pass;
  unsigned visits;
} Walk;

static bool disown(Pass *pass, const Node *at, const char *reason) {
  pass_record(pass, FUSION_ATTENTION, false, at, "%s", reason);
  return true;
}

/* What keeps the elements apart, or only moves them. */
static bool is_passed(OpKind op) {
  return op_is_pointwise(op) || op_table[op].category == CATEGORY_VIEW || op == OP_CONCAT;
}

/* A product of queries and keys: neither is a weight. */
static bool is_product(Pass *pass, const Node *node) {
  return node->op == OP_MATMUL && !match_is_static(pass, node->inputs.items[0]) &&
         !match_is_static(pass, node->inputs.items[1]);
}

/* Whether the node is made of a product of queries and keys. */
static bool has_scores(Walk *walk, const Node *node) {
  if (walk->visits >= MAX_VISITS) return false;
  walk->visits++;
  if (is_product(walk->pass, node)) return true;
  bool found = false;
  for (size_t i = 0; is_passed(node->op) && i < node->inputs.n && !found; i++)
    found = has_scores(walk, node->inputs.items[i]);
  return found;
}

/* Whether a sum over the node is taken, perhaps of what a mask leaves of it. */
static bool is_summed(const Node *node, unsigned depth) {
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    if (user->op == OP_SUM) return true;
    if (depth && op_is_pointwise(user->op) && is_summed(user, depth - 1)) return true;
  }
  return false;
}

/* What stands in the place of softmax. The scores have a row of keys, whose number only a run knows; the width of a
 * layer's result is known, which is how a feed-forward layer over tensors of the run is told apart. */
static bool is_nonlinear(const Node *node) {
  const bool bends = op_table[node->op].cost == COST_POLYNOMIAL || node->op == OP_RELU;
  return bends && node->rank && !size_is_const(dim_from_end(node, 0), NULL);
}

/* `between`: the operation next to softmax among those between it and the product; NULL: there is none. */
static bool explain_softmax(Walk *walk, const Node *softmax, const Node *between, bool on_the_right) {
  if (!has_scores(walk, softmax->inputs.items[0])) return false;
  if (on_the_right && (!between || op_table[between->op].category == CATEGORY_VIEW))
    return disown(walk->pass, softmax, "the probabilities are the right operand of their product with the values");
  if (!between) return false;
  pass_record(walk->pass, FUSION_ATTENTION, false, between,
              "what softmax gives goes through %s before the product with the values", op_table[between->op].name);
  return true;
}

static bool explain_other(Walk *walk, const Node *node) {
  const Node *x = node->inputs.items[0];
  if (node->op == OP_EXP && x->op == OP_LOG_SOFTMAX && has_scores(walk, x->inputs.items[0]))
    return disown(walk->pass, node, "softmax is written as exp(log_softmax(...)); only softmax(...) is recognized");
  if (!has_scores(walk, x)) return false;
  if (node->op == OP_EXP && is_summed(node, MAX_MASKS))
    return disown(walk->pass, node, "softmax is written out, as exp and a sum; only softmax(...) is recognized");
  if (!is_nonlinear(node)) return false;
  pass_record(walk->pass, FUSION_ATTENTION, false, node, "the scores go through %s instead of softmax",
              op_table[node->op].name);
  return true;
}

/* Walks from an operand of a product back to its softmax, or to what stands in the place of one. */
static bool explain_operand(Walk *walk, const Node *node, const Node *between, bool on_the_right) {
  if (walk->visits >= MAX_VISITS) return false;
  walk->visits++;
  if (node->op == OP_SOFTMAX) return explain_softmax(walk, node, between, on_the_right);
  if (op_table[node->op].category == CATEGORY_UNARY && explain_other(walk, node)) return true;
  bool found = false;
  for (size_t i = 0; is_passed(node->op) && i < node->inputs.n && !found; i++)
    found = explain_operand(walk, node->inputs.items[i], node, on_the_right);
  return found;
}

/* softmax(q kT) w, where w is a weight, has become linear. */
static void explain_linear(Pass *pass, const Node *linear) {
  const Node *softmax = linear->inputs.items[0];
  Walk walk = {.pass = pass};
  if (softmax->op == OP_SOFTMAX && has_scores(&walk, softmax->inputs.items[0]))
    disown(pass, linear, "the values depend on weights alone, so the product is one with a weight");
}

static void explain_product(Pass *pass, const Node *product) {
  for (uint32_t i = 0; i < 2; i++) {
    Walk walk = {.pass = pass};
    if (explain_operand(&walk, product->inputs.items[i], NULL, i == 1)) return;
  }
}

void attention_explain(Pass *pass) {
  if (!pass->log) return;
  for (const Node *node = pass->graph->first; node; node = node->next) {
    if (node->op == OP_LINEAR) explain_linear(pass, node);
    if (is_product(pass, node) && node->inputs.items[0]->op != OP_SOFTMAX) explain_product(pass, node);
  }
}

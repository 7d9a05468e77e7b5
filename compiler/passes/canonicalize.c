/* Canonicalize: the same values, written the way the later passes look for them.
 *
 *   %3 = div %2, 8.0              %3 = mul %2, 0.125
 *   %4 = permute (permute x)      %4 = x
 *   %5 = matmul %x, weight        %5 = linear %x, permute(weight)
 *
 * Legal:
 *   1. what is left out changes no element (x + 0 and x * 1 of x's own shape; identical views);
 *   2. x / c becomes x * (1/c) only if 1/c is a normal number, and exact or x made of a product of matrices: the
 *      results differ by one rounding, which must not move what was exact (positions) across a threshold;
 *   3. factors are multiplied in double under the same condition, and only if neither they nor their product is extreme;
 *   4. no rule removes a product with 0, which may be NaN.
 * Pays: attention, masks and siblings have one form to be found in. */
#include "base/check.h"
#include "passes/canonicalize.h"

enum { MAX_ROUNDS = 8, MAX_STEPS_PER_NODE = 64 };

static Rule *const rules[N_OPS] = {
    [OP_ADD] = rule_add,         [OP_SUB] = rule_sub,         [OP_MUL] = rule_mul,       [OP_DIV] = rule_div,
    [OP_NEG] = rule_neg,         [OP_TO_F32] = rule_convert,  [OP_TO_I32] = rule_convert, [OP_NOT] = rule_not,
    [OP_AND] = rule_logic,       [OP_OR] = rule_logic,        [OP_WHERE] = rule_where,   [OP_RESHAPE] = rule_reshape,
    [OP_PERMUTE] = rule_permute, [OP_SLICE] = rule_slice,     [OP_CONCAT] = rule_concat, [OP_MATMUL] = rule_matmul,
};

static bool canonicalize_node(Pass *pass, Node *node) {
  bool changed = false;
  for (unsigned i = 0; i < MAX_STEPS_PER_NODE && rules[node->op]; i++) {
    Builder b = pass_builder(pass, node, node);
    Node *by = rules[node->op](pass, &b, node);
    if (!by) break;
    CHECK(node_same_shape(by, node), "a rule of %s changed the shape", op_table[node->op].name);
    match_replace(pass, node, by);
    changed = true;
    node = by;
  }
  return changed;
}

bool pass_canonicalize(Pass *pass) {
  bool changed = false, again = true;
  for (unsigned round = 0; round < MAX_ROUNDS && again; round++) {
    again = false;
    for (Node *node = pass->graph->first, *next; node; node = next) {
      /* What a rule deletes stands before the node, so `next` stays. */
      next = node->next;
      again |= canonicalize_node(pass, node);
    }
    changed |= again;
  }
  return changed;
}

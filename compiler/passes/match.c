/* In: nodes. Out: answers about constants, shapes and uses. */
#include "passes/match.h"

#include <string.h>

// ---- constants ----

static const Node *behind_views(const Node *node) {
  while (op_table[node->op].category == CATEGORY_VIEW) node = node->inputs.items[0];
  return node;
}

bool match_number(const Node *node, double *number) {
  const Node *full = behind_views(node);
  if (full->op != OP_FULL || full->dtype != DTYPE_F32) return false;
  *number = full->attr.number;
  return true;
}

bool match_integer(const Node *node, int64_t *integer) {
  const Node *full = behind_views(node);
  if (full->op != OP_FULL || full->dtype == DTYPE_F32) return false;
  *integer = full->attr.integer;
  return true;
}

Node *match_full_like(Pass *pass, const Node *like, Node *before, double number) {
  Builder b = pass_builder(pass, before, like);
  return build_full(&b, number, like->rank, like->dims);
}

// ---- what is computed before any run ----

enum { UNKNOWN, IS_STATIC, IS_DYNAMIC };

static void remember_all(Pass *pass) {
  const bool *flags = graph_static_flags(pass->scratch, pass->graph);
  for (uint32_t i = 0; i < pass->graph->next_id; i++)
    vec_push(pass->scratch, &pass->is_static, flags[i] ? IS_STATIC : IS_DYNAMIC);
}

/* Nodes that were added since have inputs that are known, or were added just before. */
bool match_is_static(Pass *pass, const Node *node) {
  if (!pass->is_static.n) remember_all(pass);
  while (pass->is_static.n <= node->id) vec_push(pass->scratch, &pass->is_static, UNKNOWN);
  if (pass->is_static.items[node->id] != UNKNOWN) return pass->is_static.items[node->id] == IS_STATIC;
  bool is_static = true;
  for (size_t i = 0; i < node->inputs.n && is_static; i++)
    is_static = match_is_static(pass, node->inputs.items[i]);
  is_static = is_static && node_is_static(node);
  pass->is_static.items[node->id] = is_static ? IS_STATIC : IS_DYNAMIC;
  return is_static;
}

// ---- shapes ----

bool match_fills(const Node *node, uint32_t rank, const Size *const *dims) {
  if (node->rank > rank) return false;
  for (uint32_t i = 0; i < rank; i++) {
    const Size *domain = dims[rank - 1 - i];
    bool one = i >= node->rank || dim_is_one(dim_from_end(node, i));
    if (one != dim_is_one(domain)) return false;
  }
  return true;
}

bool match_broadcasts(const Node *node, uint32_t rank, const Size *const *onto) {
  if (node->rank > rank) return false;
  for (uint32_t i = 0; i < node->rank; i++)
    if (!dim_is_one(dim_from_end(node, i)) && dim_is_one(onto[rank - 1 - i])) return false;
  return true;
}

// ---- uses ----

Node *match_only_user(const Pass *pass, const Node *node) {
  if (!node->users.n || graph_is_output(pass->graph, node)) return NULL;
  for (size_t i = 1; i < node->users.n; i++)
    if (node->users.items[i] != node->users.items[0]) return NULL;
  return node->users.items[0];
}

bool match_depends(Pass *pass, const Node *node, const Node *from) {
  VEC(const Node *) pending = {0};
  bool *seen = ARENA_ARRAY(pass->scratch, bool, pass->graph->next_id);
  vec_push(pass->scratch, &pending, node);
  while (pending.n) {
    const Node *next = pending.items[--pending.n];
    if (next == from) return true;
    if (seen[next->id]) continue;
    seen[next->id] = true;
    for (size_t i = 0; i < next->inputs.n; i++) vec_push(pass->scratch, &pending, next->inputs.items[i]);
  }
  return false;
}

bool match_sibling_paths(const char *a, const char *b) {
  if (!strcmp(a, b)) return true;
  const char *dot_a = strrchr(a, '.'), *dot_b = strrchr(b, '.');
  size_t parent_a = dot_a ? (size_t)(dot_a - a) : 0, parent_b = dot_b ? (size_t)(dot_b - b) : 0;
  return parent_a == parent_b && !strncmp(a, b, parent_a);
}

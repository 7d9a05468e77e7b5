/* Nodes whose value is known before any run: constants, weights, and what is computed of them alone.
 *
 * In: a graph, or one node of it. Out: whether it is such a node. Refuses nothing. */
#include "base/map.h"
#include "graph/attributes.h"

static bool all_const(const Size *const *sizes, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (sizes[i] && !size_is_const(sizes[i], NULL)) return false;
  }
  return true;
}

/* An expression reads its inputs as the node does; of its own it has only sizes that could be of a run. */
static bool expr_is_static(const Expr *expr) {
  if (!expr) return true;
  Arena *scratch = arena_create();
  ExprList list = expr_list(scratch, expr);
  bool is_static = true;
  for (uint32_t i = 0; i < list.n; i++) {
    if (list.items[i]->kind == EXPR_SIZE) is_static &= size_is_const(list.items[i]->size, NULL);
  }
  arena_destroy(scratch);
  return is_static;
}

/* Whether the node itself, apart from its inputs, depends on nothing of a run. */
static bool static_by_itself(const Node *node) {
  bool is_static = node->op != OP_INPUT && all_const(node->dims, node->rank);
  for (Attribute i = 0; i < N_ATTRIBUTES && is_static; i++) {
    const void *member = attribute_value(&node->attr, i);
    switch (attribute_type(i)) {
      case ATTRIBUTE_IS_SIZE: is_static = all_const(member, 1); break;
      case ATTRIBUTE_IS_STARTS: is_static = all_const(member, node->rank); break;
      case ATTRIBUTE_IS_SHAPE: is_static = all_const(member, node->attr.rank_in); break;
      case ATTRIBUTE_IS_EXPR: is_static = expr_is_static(*(Expr *const *)member); break;
      default: break;
    }
  }
  return is_static;
}

/* One walk, since inputs stand before their users. */
bool *graph_static_flags(Arena *arena, const Graph *graph) {
  bool *flags = ARENA_ARRAY(arena, bool, graph->next_id);
  for (const Node *node = graph->first; node; node = node->next) {
    bool is_static = static_by_itself(node);
    for (size_t i = 0; i < node->inputs.n && is_static; i++) is_static = flags[node->inputs.items[i]->id];
    flags[node->id] = is_static;
  }
  return flags;
}

/* For a single question; the walk needs no ids, which may not be dense while a pass runs. */
bool node_is_static(const Node *node) {
  if (!static_by_itself(node)) return false;
  if (!node->inputs.n) return true;
  Arena *scratch = arena_create();
  Map seen = map_new(scratch);
  VEC(const Node *) open = {0};
  vec_push(scratch, &open, node);
  bool is_static = true;
  while (open.n && is_static) {
    const Node *next = open.items[--open.n];
    for (size_t i = 0; i < next->inputs.n && is_static; i++) {
      const Node *input = next->inputs.items[i];
      if (map_find(&seen, &input, sizeof input)) continue;
      map_put_n(&seen, &input, sizeof input, NULL);
      is_static = static_by_itself(input);
      vec_push(scratch, &open, input);
    }
  }
  arena_destroy(scratch);
  return is_static;
}

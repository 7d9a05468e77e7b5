/* What the files that build a step share: sizes and operands of the model in the step, and its inputs.
 *
 * In: nodes of the model and how the step uses them. Out: their sizes and operands there, inputs with their roles.
 * Refused: sizes that become too large as polynomials. */
#include "incremental/stepper.h"

static const Node *input(const Node *node, size_t i) { return node->inputs.items[i]; }

// ---- sizes ----

const Size *step_size(const SizeMap *map, const Size *size) { return size_substitute(map->to, size, map->of); }

bool step_is_new(const Stepper *s, const Node *node, uint8_t whole, uint32_t axis) {
  const Size *dim = node->dims[axis];
  return (is_length(s->cut, dim) || is_merged(s->cut, dim)) && !(whole & 1u << axis);
}

bool step_dims(const Stepper *s, const Node *node, uint8_t whole, const Size **dims) {
  for (uint32_t axis = 0; axis < node->rank; axis++) {
    dims[axis] = step_size(step_is_new(s, node, whole, axis) ? &s->of_new : &s->map, node->dims[axis]);
    if (!dims[axis]) return false;
  }
  return true;
}

bool step_attr(const SizeMap *map, NodeAttr *attr) {
  if (attr->size) attr->size = step_size(map, attr->size);
  for (uint32_t i = 0; i < MAX_RANK; i++) {
    if (!attr->starts[i]) continue;
    attr->starts[i] = step_size(map, attr->starts[i]);
    if (!attr->starts[i]) return false;
  }
  return true;
}

// ---- operands and inputs ----

/* The form of the operand that uses.c chose for this use; it exists, because the same two functions asked for it. */
Node *step_operand(const Stepper *s, const Node *node, size_t i, const Use *use) {
  const Cut *cut = s->cut;
  return find_use(cut, input(node, i), operand_whole(cut, node, i, use->whole), operand_bare(cut, node, i, use))->node;
}

const char *step_name(Arena *arena, Role role) {
  return arena_printf(arena, "%s.%u", role_table[role.kind].text, role.number);
}

Node *step_input(Stepper *s, const Node *node, Role role, const Size *const *dims) {
  Builder b = {.graph = s->graph, .origin = node->origin};
  const char *name = role.kind == ROLE_TOKENS ? node->attr.name : step_name(s->cut->scratch, role);
  Node *input = build_input(&b, name, node->dtype, node->rank, dims);
  input->attr.role = role;
  if (role.kind == ROLE_TOKENS) {
    input->attr.range_text = node->attr.range_text;
    input->attr.least = node->attr.least;
    input->attr.most = node->attr.most;
  }
  return input;
}

Node *step_copy(Graph *graph, const Node *node, const NodeAttr *attr, const Size *const *dims,
                       Node *const *operands) {
  Node *copy = graph_add(graph, NULL, node->op, node->dtype, node->rank, dims, (uint32_t)node->inputs.n, operands,
                         node->origin);
  copy->attr = *attr;
  if (node->op == OP_WEIGHT) map_put(&graph->declared_weights, attr->name, copy);
  return copy;
}

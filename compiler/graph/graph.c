/* In: requests to add, rewire and remove nodes. Out: a list in which inputs stand before their users and every use is
 * recorded at both ends. Deleting a node in use is an internal error; a node used before it is computed is for
 * graph_verify to find. Copies are in graph_copy.c. */
#include "graph/graph.h"

#include <string.h>

#include "base/check.h"

const RoleInfo role_table[N_ROLES] = {
#define ROLE(Enum, text, where, is_numbered) [ROLE_##Enum] = {text, where, is_numbered},
#include "graph/roles.def"
};

const char *const size_role_names[N_SIZE_ROLES] = {
#define SIZE_ROLE(Enum, text) [ROLE_##Enum] = text,
#include "graph/roles.def"
};

Graph *graph_new(Arena *arena, const char *name) {
  Graph *graph = ARENA_NEW(arena, Graph);
  graph->arena = arena;
  graph->sizes = size_table_new(arena);
  graph->name = arena_strdup(arena, name);
  graph->ragged_batch = -1;
  for (int i = 0; i < N_SIZE_ROLES; i++) graph->size_roles[i] = -1;
  graph->declared_weights = map_new(arena);
  return graph;
}

// ---- the list ----

/* `before` NULL: at the end. */
static void link_before(Graph *graph, Node *node, Node *before) {
  node->next = before;
  node->prev = before ? before->prev : graph->last;
  *(node->prev ? &node->prev->next : &graph->first) = node;
  *(before ? &before->prev : &graph->last) = node;
}

/* The node keeps its inputs and users; only its place in the list goes. */
static void unlink_node(Graph *graph, Node *node) {
  *(node->prev ? &node->prev->next : &graph->first) = node->next;
  *(node->next ? &node->next->prev : &graph->last) = node->prev;
  node->prev = node->next = NULL;
}

void graph_move_before(Graph *graph, Node *node, Node *before) {
  if (node == before) return;
  unlink_node(graph, node);
  link_before(graph, node, before);
}

static void add_user(Node *node, Node *user) { vec_push(node->arena, &node->users, user); }

/* Records a use at both ends. */
static void add_input(Graph *graph, Node *node, Node *input) {
  CHECK(input && !input->deleted, "an input of %s is missing or deleted", op_table[node->op].name);
  vec_push(graph->arena, &node->inputs, input);
  add_user(input, node);
}

Node *graph_add(Graph *graph, Node *before, OpKind op, DType dtype, uint32_t rank, const Size *const *dims,
                uint32_t n_inputs, Node *const *inputs, Origin origin) {
  CHECK(rank <= MAX_RANK, "%s of rank %u", op_table[op].name, rank);
  Node *node = ARENA_NEW(graph->arena, Node);
  node->arena = graph->arena;
  node->op = op;
  node->dtype = dtype;
  node->rank = (uint8_t)rank;
  node->id = graph->next_id++;
  for (uint32_t i = 0; i < rank; i++) node->dims[i] = dims[i];
  node->origin = origin;
  if (!node->origin.path) node->origin.path = "";
  for (uint32_t i = 0; i < n_inputs; i++) add_input(graph, node, inputs[i]);
  link_before(graph, node, before);
  if (op == OP_INPUT) vec_push(graph->arena, &graph->inputs, node);
  return node;
}

void graph_renumber(Graph *graph) {
  graph->next_id = 0;
  for (Node *node = graph->first; node; node = node->next) node->id = graph->next_id++;
}

uint32_t graph_count(const Graph *graph) {
  uint32_t count = 0;
  for (const Node *node = graph->first; node; node = node->next) count++;
  return count;
}

// ---- uses ----

static void remove_user(Node *node, const Node *user) {
  size_t i = node->users.n; /* from the end: what is removed was mostly added late */
  while (i > 0 && node->users.items[i - 1] != user) i--;
  CHECK(i > 0, "%%%u does not know its user %%%u", node->id, user->id);
  memmove(&node->users.items[i - 1], &node->users.items[i], (node->users.n - i) * sizeof(Node *));
  node->users.n--;
}

void graph_set_input(Node *node, uint32_t index, Node *input) {
  CHECK(index < node->inputs.n, "%%%u has no input %u", node->id, index);
  Node *old = node->inputs.items[index];
  if (old == input) return;
  remove_user(old, node);
  node->inputs.items[index] = input;
  add_user(input, node);
}

/* Uses of the old inputs go before those of the new are added, so that an input in both lists is counted right. */
void graph_set_inputs(Graph *graph, Node *node, uint32_t n, Node *const *inputs) {
  Node **copies = arena_copy(graph->arena, inputs, n * sizeof *inputs); /* `inputs` may be the node's own */
  for (size_t i = node->inputs.n; i > 0; i--) remove_user(node->inputs.items[i - 1], node);
  node->inputs.n = 0;
  for (uint32_t i = 0; i < n; i++) add_input(graph, node, copies[i]);
}

void graph_replace_uses(Graph *graph, Node *node, Node *by) {
  if (node == by) return;
  if (graph->notes.watch) graph->notes.watch->replaced(graph->notes.watch->context, node, by);
  for (size_t i = 0; i < node->users.n; i++) {
    Node *user = node->users.items[i];
    CHECK(user != by, "%%%u would become its own input", by->id);
    size_t slot = 0; /* a user is listed once per use, so each listing redirects one input */
    while (user->inputs.items[slot] != node) slot++;
    user->inputs.items[slot] = by;
    add_user(by, user);
  }
  node->users.n = 0;
  for (size_t i = 0; i < graph->outputs.n; i++) {
    if (graph->outputs.items[i].node == node) graph->outputs.items[i].node = by;
  }
}

void graph_delete(Graph *graph, Node *node) {
  CHECK(node->users.n == 0, "%%%u is deleted, but has %zu uses", node->id, node->users.n);
  CHECK(node->op != OP_INPUT && !graph_is_output(graph, node), "%%%u is deleted, but is an input or output", node->id);
  for (size_t i = node->inputs.n; i > 0; i--) remove_user(node->inputs.items[i - 1], node);
  node->inputs.n = 0;
  unlink_node(graph, node);
  node->deleted = true;
}

void graph_delete_inputs(Graph *graph) {
  for (size_t i = 0; i < graph->inputs.n; i++) {
    Node *node = graph->inputs.items[i];
    CHECK(node->users.n == 0 && !graph_is_output(graph, node), "%%%u is deleted, but has uses", node->id);
    unlink_node(graph, node);
    node->deleted = true;
  }
  graph->inputs.n = 0;
}

bool graph_is_output(const Graph *graph, const Node *node) {
  for (size_t i = 0; i < graph->outputs.n; i++) {
    if (graph->outputs.items[i].node == node) return true;
  }
  return false;
}

// ---- shapes ----

/* Sizes are interned, so the same shape is the same pointers. */
bool node_same_shape(const Node *a, const Node *b) {
  return a->rank == b->rank && (!a->rank || memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0);
}

const Size *node_elements(SizeTable *table, const Node *node) {
  return sizes_product(table, node->rank, node->dims);
}

// ---- roles ----

Node *graph_input_with(const Graph *graph, Role role) {
  for (size_t i = 0; i < graph->inputs.n; i++)
    if (role_is(graph->inputs.items[i]->attr.role, role)) return graph->inputs.items[i];
  return NULL;
}

const GraphOutput *graph_output_with(const Graph *graph, Role role) {
  for (size_t i = 0; i < graph->outputs.n; i++)
    if (role_is(graph->outputs.items[i].role, role)) return &graph->outputs.items[i];
  return NULL;
}

/* The symbol is declared, so size_symbol finds it and adds nothing. */
const Size *graph_size_with(const Graph *graph, SizeRole role) {
  int32_t symbol = graph->size_roles[role];
  return symbol < 0 ? NULL : size_symbol(graph->sizes, graph->sizes->symbols[symbol]);
}

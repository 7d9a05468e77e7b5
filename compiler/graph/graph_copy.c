/* In: a graph. Out: a copy in another arena that shares nothing with it; the same graph without ragged sizes. Refuses
 * nothing. */
#include "graph/attributes.h"

#include <string.h>

#include "base/check.h"

// ---- copies ----
//
// A copy shares nothing with the original but source texts. Sizes are interned anew; nodes, conditions and call frames
// are copied once each, so that what was shared is shared in the copy.

typedef struct Clone {
  Arena *arena;
  Graph *graph;
  Map copies; /* address of a Node, Cond or Frame -> its copy */
} Clone;

static void *known(const Clone *c, const void *original) {
  MapEntry *entry = map_find(&c->copies, &original, sizeof original);
  return entry ? entry->value : NULL;
}

static void *remember(Clone *c, const void *original, void *copy) {
  map_put_n(&c->copies, &original, sizeof original, copy);
  return copy;
}

static const char *clone_text(const Clone *c, const char *text) { return text ? arena_strdup(c->arena, text) : NULL; }

/* Symbols have the same indexes in both tables, because graph_clone declares them first. */
static const Size *clone_size(const Clone *c, const Size *size) { return size_copy(c->graph->sizes, size); }

static const Frame *clone_frame(Clone *c, const Frame *frame) {
  if (!frame) return NULL;
  Frame *copy = known(c, frame);
  if (copy) return copy;
  copy = arena_copy(c->arena, frame, sizeof *frame);
  copy->name = clone_text(c, frame->name);
  copy->path = clone_text(c, frame->path);
  copy->caller = clone_frame(c, frame->caller);
  return remember(c, frame, copy);
}

static Origin clone_origin(Clone *c, Origin origin) {
  return (Origin){.span = origin.span,
                  .path = clone_text(c, origin.path),
                  .frame = clone_frame(c, origin.frame),
                  .name = clone_text(c, origin.name),
                  .refusal = clone_text(c, origin.refusal)};
}

/* Through the list of distinct subexpressions, so that sharing survives and the work is linear. */
static Expr *clone_expr(const Clone *c, const Expr *expr) {
  if (!expr) return NULL;
  Arena *scratch = arena_create();
  ExprList list = expr_list(scratch, expr);
  Expr **copies = ARENA_ARRAY(scratch, Expr *, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    copies[i] = arena_copy(c->arena, list.items[i], sizeof *expr);
    copies[i]->size = clone_size(c, list.items[i]->size);
    for (uint32_t j = 0; j < copies[i]->n_args; j++) copies[i]->args[j] = copies[list.args[j][i]];
  }
  Expr *root = copies[list.n - 1];
  arena_destroy(scratch);
  return root;
}

static void clone_sizes(const Clone *c, const Size **sizes) {
  for (int i = 0; i < MAX_RANK; i++) sizes[i] = clone_size(c, sizes[i]);
}

/* What is a pointer is copied behind it. */
static NodeAttr clone_attr(const Clone *c, const NodeAttr *attr) {
  NodeAttr copy = *attr;
  for (Attribute i = 0; i < N_ATTRIBUTES; i++) {
    void *member = attribute_member(&copy, i);
    const char **text = member;
    const Size **size = member;
    Expr **expr = member;
    switch (attribute_type(i)) {
      case ATTRIBUTE_IS_TEXT:
      case ATTRIBUTE_IS_RANGE: *text = clone_text(c, *text); break;
      case ATTRIBUTE_IS_SIZE: *size = clone_size(c, *size); break;
      case ATTRIBUTE_IS_STARTS:
      case ATTRIBUTE_IS_SHAPE: clone_sizes(c, size); break;
      case ATTRIBUTE_IS_EXPR: *expr = clone_expr(c, *expr); break;
      default: break;
    }
  }
  return copy;
}

static void clone_node(Clone *c, const Node *node) {
  const Size *dims[MAX_RANK];
  for (uint8_t i = 0; i < node->rank; i++) dims[i] = clone_size(c, node->dims[i]);
  Node **inputs = ARENA_ARRAY(c->arena, Node *, node->inputs.n);
  for (size_t i = 0; i < node->inputs.n; i++) {
    inputs[i] = known(c, node->inputs.items[i]);
    CHECK(inputs[i], "%%%u stands before its input", node->id);
  }
  Node *copy = graph_add(c->graph, NULL, node->op, node->dtype, node->rank, dims, (uint32_t)node->inputs.n, inputs,
                         clone_origin(c, node->origin));
  copy->id = node->id;
  copy->attr = clone_attr(c, &node->attr);
  remember(c, node, copy);
}

static const Cond *clone_cond(Clone *c, const Cond *cond) {
  if (!cond) return NULL;
  Cond *copy = known(c, cond);
  if (copy) return copy;
  copy = arena_copy(c->arena, cond, sizeof *cond);
  copy->left = clone_size(c, cond->left);
  copy->right = clone_size(c, cond->right);
  copy->a = clone_cond(c, cond->a);
  copy->b = clone_cond(c, cond->b);
  return remember(c, cond, copy);
}

static void clone_checks(Clone *c, const Graph *graph) {
  for (size_t i = 0; i < graph->checks.n; i++) {
    const Check *check = &graph->checks.items[i];
    Check copy = {.condition = clone_cond(c, check->condition),
                  .origin = clone_origin(c, check->origin),
                  .is_stated = check->is_stated};
    for (size_t j = 0; j < check->message.n; j++) {
      const CheckPart *part = &check->message.items[j];
      vec_push(c->arena, &copy.message, (CheckPart){clone_text(c, part->text), clone_size(c, part->size), part->named});
    }
    vec_push(c->arena, &c->graph->checks, copy);
  }
}

static void clone_generate(Clone *c, const Graph *graph) {
  c->graph->generate_input = clone_text(c, graph->generate_input);
  c->graph->generate_output = clone_text(c, graph->generate_output);
  for (size_t i = 0; i < graph->generate_settings.n; i++) {
    const GenerateSetting *setting = &graph->generate_settings.items[i];
    GenerateSetting copy = {.name = clone_text(c, setting->name)};
    for (size_t j = 0; j < setting->values.n; j++) vec_push(c->arena, &copy.values, setting->values.items[j]);
    vec_push(c->arena, &c->graph->generate_settings, copy);
  }
}

/* A declared weight that is no longer in the graph is kept as a deleted node: only its name and shape matter, for the
 * warnings about the weight file. */
static void clone_declared(Clone *c, const Graph *graph) {
  for (size_t i = 0; i < graph->declared_weights.n; i++) {
    const MapEntry *entry = &graph->declared_weights.items[i];
    const Node *node = entry->value;
    Node *copy = node ? known(c, node) : NULL;
    if (node && !copy) {
      copy = ARENA_NEW(c->arena, Node);
      *copy = (Node){.op = node->op, .dtype = node->dtype, .rank = node->rank, .id = node->id, .deleted = true};
      copy->arena = c->arena;
      for (uint8_t j = 0; j < node->rank; j++) copy->dims[j] = clone_size(c, node->dims[j]);
      copy->attr = clone_attr(c, &node->attr);
      copy->origin = clone_origin(c, node->origin);
    }
    map_put_n(&c->graph->declared_weights, entry->key, entry->length, copy);
  }
}

static void clone_adapters(Clone *c, const Graph *graph) {
  for (size_t i = 0; i < graph->adapters.n; i++) {
    const GraphAdapter *of = &graph->adapters.items[i];
    const GraphAdapter copy = {clone_text(c, of->weight), clone_text(c, of->a), clone_text(c, of->b), of->scale};
    vec_push(c->arena, &c->graph->adapters, copy);
  }
}

/* Nodes keep their ids, so arrays by id may be carried over. */
Graph *graph_clone(Arena *arena, const Graph *graph) {
  Clone c = {.arena = arena, .graph = graph_new(arena, graph->name), .copies = map_new(arena)};
  for (uint32_t i = 0; i < graph->sizes->n_symbols; i++) size_symbol(c.graph->sizes, graph->sizes->symbols[i]);
  for (const Node *node = graph->first; node; node = node->next) clone_node(&c, node);
  c.graph->inputs.n = 0; /* in order of declaration, which need not be that of the list */
  for (size_t i = 0; i < graph->inputs.n; i++) vec_push(arena, &c.graph->inputs, known(&c, graph->inputs.items[i]));
  for (size_t i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.items[i];
    vec_push(arena, &c.graph->outputs, (GraphOutput){clone_text(&c, output->name), known(&c, output->node),
                                                      output->role});
  }
  clone_checks(&c, graph);
  memcpy(c.graph->ragged, graph->ragged, sizeof graph->ragged);
  c.graph->is_portable = graph->is_portable;
  c.graph->is_of_step = graph->is_of_step;
  c.graph->ragged_batch = graph->ragged_batch;
  memcpy(c.graph->size_roles, graph->size_roles, sizeof graph->size_roles);
  clone_generate(&c, graph);
  clone_declared(&c, graph);
  clone_adapters(&c, graph);
  c.graph->next_id = graph->next_id;
  return c.graph;
}

// ---- without ragged sizes ----

/* The size for a batch of one item; one that overflows stays as it is. */
static const Size *of_item(const Graph *graph, const Size *size) {
  const Size *single = size ? size_with(graph->sizes, size, (uint32_t)graph->ragged_batch, 1) : NULL;
  return single ? single : size;
}

/* Conditions may be shared, so they are copied, not changed. */
static const Cond *cond_of_item(const Graph *graph, const Cond *cond) {
  if (!cond) return NULL;
  Cond *copy = arena_copy(graph->arena, cond, sizeof *cond);
  copy->left = of_item(graph, cond->left);
  copy->right = of_item(graph, cond->right);
  copy->a = cond_of_item(graph, cond->a);
  copy->b = cond_of_item(graph, cond->b);
  return copy;
}

void graph_make_uniform(Graph *graph) {
  if (graph->ragged_batch < 0) return;
  for (size_t i = 0; i < graph->checks.n; i++) {
    Check *check = &graph->checks.items[i];
    check->condition = cond_of_item(graph, check->condition);
    for (size_t part = 0; part < check->message.n; part++)
      check->message.items[part].size = of_item(graph, check->message.items[part].size);
  }
  memset(graph->ragged, 0, sizeof graph->ragged);
  graph->ragged_batch = -1;
}

/* In: a graph, from anywhere. Out: every rule it breaks, as DIAG_GRAPH_INVALID with the text form of the node: first
 * the structure (list, uses, names), and only if that is sound each node's type against the rule of its operation,
 * since the rules follow inputs without checking them. */
#include <string.h>

#include "graph/infer.h"

typedef struct Verifier {
  Graph *graph;
  Diag *diag;
  const Node **by_id; /* the node in the list that has the id */
  size_t *uses;       /* by id: how often it occurs among inputs */
  bool *computed;     /* by id: it comes before the node being checked */
} Verifier;

__attribute__((format(printf, 3, 4))) static void fault(Verifier *v, const Node *node, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(v->graph->arena, format, args);
  va_end(args);
  if (!node) {
    diag_error_at(v->diag, NULL, DIAG_GRAPH_INVALID, "%s", text);
    return;
  }
  StrBuf out = strbuf_new(v->graph->arena);
  node_print(&out, v->graph->sizes, node);
  diag_error(v->diag, node->origin.span, DIAG_GRAPH_INVALID, "%s, in %s", text, out.text);
}

static bool in_list(const Verifier *v, const Node *node) {
  return node && node->id < v->graph->next_id && v->by_id[node->id] == node;
}

// ---- structure ----

static void check_list(Verifier *v) {
  const Node *prev = NULL;
  for (const Node *node = v->graph->first; node; prev = node, node = node->next) {
    if (node->prev != prev) fault(v, node, "the list of nodes is broken");
    if (node->deleted) fault(v, node, "a deleted node is in the list");
    if (node->id >= v->graph->next_id || v->by_id[node->id]) fault(v, node, "the number is not its own");
    else v->by_id[node->id] = node;
    for (uint8_t i = 0; i < node->rank; i++) {
      if (!node->dims[i]) fault(v, node, "axis %u has no size", i);
    }
  }
  if (v->graph->last != prev) fault(v, NULL, "the last node is not the end of the list");
}

static void check_inputs(Verifier *v, const Node *node) {
  for (size_t i = 0; i < node->inputs.n; i++) {
    const Node *input = node->inputs.items[i];
    if (!in_list(v, input)) {
      fault(v, node, "input %zu is not in the graph", i);
      continue;
    }
    if (!v->computed[input->id]) fault(v, node, "input %%%u is not computed before", input->id);
    v->uses[input->id]++;
  }
  v->computed[node->id] = true;
}

static bool has_input(const Node *node, const Node *input) {
  for (size_t i = 0; i < node->inputs.n; i++) {
    if (node->inputs.items[i] == input) return true;
  }
  return false;
}

static void check_users(Verifier *v, const Node *node) {
  if (node->users.n != v->uses[node->id]) {
    fault(v, node, "%zu uses are recorded, there are %zu", node->users.n, v->uses[node->id]);
  }
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    if (!in_list(v, user) || !has_input(user, node)) fault(v, node, "a recorded user does not use it");
  }
}

// ---- names ----

static void check_weights(Verifier *v) {
  Map seen = map_new(v->graph->arena);
  for (const Node *node = v->graph->first; node; node = node->next) {
    if (node->op != OP_WEIGHT || !node->attr.name) continue;
    const Node *other = map_get(&seen, node->attr.name);
    if (other && !node_same_shape(other, node)) fault(v, node, "%%%u is the same weight of another shape", other->id);
    map_put(&seen, node->attr.name, (void *)node);
  }
}

static void check_model_inputs(Verifier *v) {
  Map seen = map_new(v->graph->arena);
  size_t n = 0;
  for (const Node *node = v->graph->first; node; node = node->next) n += node->op == OP_INPUT;
  if (n != v->graph->inputs.n) fault(v, NULL, "%zu inputs are recorded, there are %zu", v->graph->inputs.n, n);
  for (size_t i = 0; i < v->graph->inputs.n; i++) {
    const Node *node = v->graph->inputs.items[i];
    if (!in_list(v, node) || node->op != OP_INPUT) {
      fault(v, NULL, "input %zu of the model is no input in the list", i);
    } else if (node->attr.name) {
      if (map_has(&seen, node->attr.name)) fault(v, node, "two inputs have this name");
      map_put(&seen, node->attr.name, NULL);
    }
  }
}

static void check_outputs(Verifier *v) {
  Map seen = map_new(v->graph->arena);
  for (size_t i = 0; i < v->graph->outputs.n; i++) {
    const GraphOutput *output = &v->graph->outputs.items[i];
    if (!in_list(v, output->node)) fault(v, NULL, "output '%s' is not in the graph", output->name);
    if (map_has(&seen, output->name)) fault(v, NULL, "two outputs are called '%s'", output->name);
    map_put(&seen, output->name, NULL);
  }
}

static void check_ragged(Verifier *v) {
  const Graph *graph = v->graph;
  int32_t batch = graph->ragged_batch;
  if (batch >= (int32_t)graph->sizes->n_symbols) fault(v, NULL, "the size of the batch is not declared");
  else if (batch >= 0 && graph->ragged[batch]) fault(v, NULL, "the size of the batch is ragged");
  for (uint32_t i = 0; i < SIZE_MAX_SYMBOLS; i++) {
    if (!graph->ragged[i]) continue;
    if (i >= graph->sizes->n_symbols) fault(v, NULL, "a ragged size is not declared");
    else if (batch < 0) fault(v, NULL, "'%s' is ragged without a batch", graph->sizes->symbols[i]);
  }
}

static void check_generate(Verifier *v) {
  const Graph *graph = v->graph;
  if (!graph->generate_input) return;
  bool input = false, output = false;
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const char *name = graph->inputs.items[i]->attr.name;
    input |= name && strcmp(name, graph->generate_input) == 0;
  }
  for (size_t i = 0; i < graph->outputs.n && graph->generate_output; i++) {
    output |= strcmp(graph->outputs.items[i].name, graph->generate_output) == 0;
  }
  if (!input) fault(v, NULL, "generate: there is no input '%s'", graph->generate_input);
  const char *name = graph->generate_output ? graph->generate_output : "";
  if (!output) fault(v, NULL, "generate: there is no output '%s'", name);
}

// ---- types ----

static void check_type(Verifier *v, const Node *node) {
  NodeType type, own = type_of(node);
  const char *text = infer_arity(v->graph->sizes, node);
  if (!text) text = infer_node(v->graph->sizes, node, &type);
  if (text) {
    fault(v, node, "%s", text);
  } else if (!infer_same_type(v->graph->sizes, &type, &own)) {
    StrBuf out = strbuf_new(v->graph->arena);
    type_print(&out, v->graph->sizes, &type);
    fault(v, node, "the result should be %s", out.text);
  }
}

bool graph_verify(Graph *graph, Diag *diag) {
  int before = diag->n_errors;
  Arena *scratch = arena_create();
  Verifier v = {.graph = graph, .diag = diag};
  v.by_id = ARENA_ARRAY(scratch, const Node *, graph->next_id);
  v.uses = ARENA_ARRAY(scratch, size_t, graph->next_id);
  v.computed = ARENA_ARRAY(scratch, bool, graph->next_id);
  check_list(&v);
  if (diag->n_errors == before) {
    for (const Node *node = graph->first; node; node = node->next) check_inputs(&v, node);
    for (const Node *node = graph->first; node; node = node->next) check_users(&v, node);
  }
  check_model_inputs(&v);
  check_outputs(&v);
  check_ragged(&v);
  if (diag->n_errors == before) {
    check_weights(&v);
    check_generate(&v);
    for (const Node *node = graph->first; node; node = node->next) check_type(&v, node);
  }
  arena_destroy(scratch);
  return diag->n_errors == before;
}

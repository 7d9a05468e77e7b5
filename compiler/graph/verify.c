/* In: a graph, from anywhere: a text, a pass, the incremental form. Out: every rule it breaks, as DIAG_GRAPH_INVALID
 * with the text form of the node: first the structure (list, uses, names), and only if that is sound each node's type
 * against the rule of its operation, since the rules follow inputs without checking them. The graph is not changed. */
#include <string.h>

#include "graph/infer.h"

typedef struct Verifier {
  Graph *graph;
  Diag *diag;
  Arena *scratch;
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

/* By id, so that a pointer to a deleted or foreign node is found without being followed further. */
static bool in_list(const Verifier *v, const Node *node) {
  return node && node->id < v->graph->next_id && v->by_id[node->id] == node;
}

// ---- structure ----

/* Fills in by_id, which all later checks use. */
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

/* Inputs stand before their users, which also shows that the graph has no cycle. */
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

/* As many users as uses, and each user has the node among its inputs: then the two lists say the same. */
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

/* One name is one tensor of the file; nodes that share it must agree on the shape. */
static void check_weights(Verifier *v) {
  Map seen = map_new(v->graph->arena);
  for (const Node *node = v->graph->first; node; node = node->next) {
    if (node->op != OP_WEIGHT || !node->attr.name) continue;
    const Node *other = map_get(&seen, node->attr.name);
    if (other && !node_same_shape(other, node)) fault(v, node, "%%%u is the same weight of another shape", other->id);
    map_put(&seen, node->attr.name, (void *)node);
  }
}

/* graph->inputs lists exactly the INPUT nodes, under different names. */
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

/* Ragged sizes need the size of the batch whose items they belong to. */
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

/* The generate block names an input and an output of the graph. */
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
  const char *wanted = graph->generate_output ? graph->generate_output : "";
  if (!output) fault(v, NULL, "generate: there is no output '%s'", wanted);
}

// ---- roles ----

static const char *role_text(const Verifier *v, Role role) {
  const RoleInfo *info = &role_table[role.kind];
  return info->is_numbered ? arena_printf(v->scratch, "%s %u", info->text, role.number) : info->text;
}

static bool is_step(const Verifier *v) { return v->graph->size_roles[ROLE_PAST] >= 0; }

/* Past, fresh and kept make a step: all of them or none. */
static void check_size_roles(Verifier *v) {
  const Graph *graph = v->graph;
  for (int i = 0; i < N_SIZE_ROLES; i++) {
    if (graph->size_roles[i] >= (int32_t)graph->sizes->n_symbols)
      fault(v, NULL, "the size with the role %s is not declared", size_role_names[i]);
    if (graph->size_roles[i] >= 0 && graph->generate_input)
      fault(v, NULL, "a size with the role %s in a graph with a generate block", size_role_names[i]);
    for (int k = 0; k < i; k++)
      if (graph->size_roles[i] >= 0 && graph->size_roles[i] == graph->size_roles[k])
        fault(v, NULL, "one size has the roles %s and %s", size_role_names[k], size_role_names[i]);
  }
  bool has_fresh = graph->size_roles[ROLE_FRESH] >= 0, has_kept = graph->size_roles[ROLE_KEPT] >= 0;
  if (has_fresh != is_step(v) || has_kept != is_step(v))
    fault(v, NULL, "a step has sizes with the roles past, fresh and kept, or it is no step and has none of them");
}

/* Caches, and encoded values, are numbered 0, 1, 2 ... in any order: each number is that of one of them. */
static void check_places(Verifier *v, size_t n, const Role *roles, const char *const *names, unsigned place) {
  uint32_t counts[N_ROLES] = {0};
  for (size_t i = 0; i < n; i++) counts[roles[i].kind]++;
  for (size_t i = 0; i < n; i++) {
    if (roles[i].kind == ROLE_NONE) continue;
    if (!(role_table[roles[i].kind].where & place))
      fault(v, NULL, "'%s' cannot be %s here", names[i], role_text(v, roles[i]));
    if (roles[i].number >= counts[roles[i].kind])
      fault(v, NULL, "'%s' is %s, but their number is %u", names[i], role_text(v, roles[i]), counts[roles[i].kind]);
    for (size_t k = 0; k < i; k++)
      if (role_is(roles[i], roles[k]))
        fault(v, NULL, "'%s' and '%s' are both %s", names[k], names[i], role_text(v, roles[i]));
  }
}

static void check_places_of_all(Verifier *v) {
  const Graph *graph = v->graph;
  size_t n_in = graph->inputs.n, n_out = graph->outputs.n;
  Role *roles = ARENA_ARRAY(v->scratch, Role, n_in + n_out);
  const char **names = ARENA_ARRAY(v->scratch, const char *, n_in + n_out);
  for (size_t i = 0; i < n_in; i++) {
    roles[i] = graph->inputs.items[i]->attr.role;
    names[i] = graph->inputs.items[i]->attr.name ? graph->inputs.items[i]->attr.name : "";
  }
  for (size_t i = 0; i < n_out; i++) {
    roles[n_in + i] = graph->outputs.items[i].role;
    names[n_in + i] = graph->outputs.items[i].name;
  }
  check_places(v, n_in, roles, names, is_step(v) ? IN_STEP : 0);
  unsigned out = is_step(v) ? OUT_OF_STEP : graph->generate_input ? 0 : OUT_OF_ENCODER | OUT_OF_OBJECTIVE;
  check_places(v, n_out, roles + n_in, names + n_in, out);
}

/* [rows, size, ...]; without the role rows a step has one row. */
static bool has_rows(const Verifier *v, const Node *node, DType dtype, uint32_t rank, const Size *size) {
  const Size *rows = graph_size_with(v->graph, ROLE_ROWS);
  if (node->dtype != dtype || node->rank != rank || node->dims[1] != size) return false;
  return rows ? node->dims[0] == rows : size_equals(node->dims[0], 1);
}

/* The output is the input with the new positions behind the earlier ones. */
static bool continues(const Verifier *v, const Node *input, const Node *output) {
  const Size *past = graph_size_with(v->graph, ROLE_PAST), *fresh = graph_size_with(v->graph, ROLE_FRESH);
  const Size *all = size_add(v->graph->sizes, past, fresh);
  uint32_t n_longer = 0;
  if (output->dtype != input->dtype || output->rank != input->rank) return false;
  for (uint32_t i = 0; i < input->rank; i++) {
    bool is_longer = input->dims[i] == past && output->dims[i] == all;
    if (!is_longer && input->dims[i] != output->dims[i]) return false;
    n_longer += is_longer;
  }
  return n_longer == 1;
}

/* The output has the shape of the input, which does not grow with positions. */
static bool replaces(const Verifier *v, const Node *input, const Node *output) {
  static const SizeRole own[] = {ROLE_PAST, ROLE_FRESH, ROLE_KEPT};
  if (output->dtype != input->dtype || !node_same_shape(output, input)) return false;
  for (uint32_t i = 0; i < input->rank; i++)
    for (size_t k = 0; k < sizeof own / sizeof *own; k++) {
      const Size *size = graph_size_with(v->graph, own[k]);
      if (size && size_involves(input->dims[i], (uint32_t)size_symbol_of(size))) return false;
    }
  return true;
}

static void check_caches(Verifier *v) {
  const Graph *graph = v->graph;
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const Node *input = graph->inputs.items[i];
    const Role role = input->attr.role;
    if (!role_goes_on(role)) continue;
    const GraphOutput *output = graph_output_with(graph, role);
    if (!output) fault(v, input, "no output is %s", role_text(v, role));
    else if (role.kind == ROLE_CACHE && !continues(v, input, output->node))
      fault(v, input, "the output '%s' does not add the new positions to it", output->name);
    else if (role.kind != ROLE_CACHE && !replaces(v, input, output->node))
      fault(v, input, "the output '%s' is no state of the same shape, free of positions", output->name);
  }
  for (size_t i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.items[i];
    if (role_goes_on(output->role) && !graph_input_with(graph, output->role))
      fault(v, NULL, "no input is %s", role_text(v, output->role));
  }
}

/* The interface of incremental.h, which the runtime relies on. */
static void check_step(Verifier *v) {
  const Size *fresh = graph_size_with(v->graph, ROLE_FRESH), *kept = graph_size_with(v->graph, ROLE_KEPT);
  const Node *tokens = graph_input_with(v->graph, (Role){ROLE_TOKENS, 0});
  const GraphOutput *logits = graph_output_with(v->graph, (Role){ROLE_LOGITS, 0});
  const GraphOutput *sums = graph_output_with(v->graph, (Role){ROLE_LOGSUMEXP, 0});
  if (!tokens) fault(v, NULL, "a step without an input that is tokens");
  else if (!has_rows(v, tokens, DTYPE_I32, 2, fresh)) fault(v, tokens, "tokens are i32[rows, fresh]");
  if (logits && (!has_rows(v, logits->node, DTYPE_F32, 3, kept) || !size_is_const(logits->node->dims[2], NULL)))
    fault(v, logits->node, "logits are f32[rows, kept, a constant]");
  if (sums && !has_rows(v, sums->node, DTYPE_F32, 2, kept)) fault(v, sums->node, "logsumexp is f32[rows, kept]");
  check_caches(v);
}

// ---- types ----

/* Types may differ in polynomials that could be equal in a run (infer_same_type). */
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

static void check_ranges(Verifier *v) {
  for (size_t i = 0; i < v->graph->inputs.n; i++) {
    const Node *input = v->graph->inputs.items[i];
    if (!input->attr.range_text) continue;
    if (input->dtype != DTYPE_I32) fault(v, input, "a range is one of an i32");
    else if (input->attr.least > input->attr.most) fault(v, input, "the range is empty");
  }
}

/* Each group of checks runs only if those that it relies on found nothing. */
bool graph_verify(Graph *graph, Diag *diag) {
  int before = diag->n_errors;
  Arena *scratch = arena_create();
  Verifier v = {.graph = graph, .diag = diag, .scratch = scratch};
  v.by_id = ARENA_ARRAY(scratch, const Node *, graph->next_id);
  v.uses = ARENA_ARRAY(scratch, size_t, graph->next_id);
  v.computed = ARENA_ARRAY(scratch, bool, graph->next_id);
  check_list(&v);
  if (diag->n_errors == before) {
    for (const Node *node = graph->first; node; node = node->next) check_inputs(&v, node);
    for (const Node *node = graph->first; node; node = node->next) check_users(&v, node);
  }
  check_model_inputs(&v);
  check_ranges(&v);
  check_outputs(&v);
  check_ragged(&v);
  check_size_roles(&v);
  if (diag->n_errors == before) {
    check_weights(&v);
    check_generate(&v);
    check_places_of_all(&v);
    if (is_step(&v)) check_step(&v);
    for (const Node *node = graph->first; node; node = node->next) check_type(&v, node);
  }
  arena_destroy(scratch);
  return diag->n_errors == before;
}

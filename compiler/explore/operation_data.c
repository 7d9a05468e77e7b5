/* Operations: the nodes of a program, as they were written and after the passes.
 *
 * * In: two graphs and what tracks.h knows of their nodes; the plan. Out: the lists `primitives` and `ops`, with the
 * steps that compute each. Weights, constants and inputs are no operations. Refuses nothing. */
#include "explore/explorer.h"

static bool is_operation(const Node *node) {
  return node->op != OP_INPUT && node->op != OP_WEIGHT && node->op != OP_FULL && node->op != OP_SIZE;
}

static json_t *operation(Explorer *x, const Graph *graph, const Node *node) {
  StrBuf shape = strbuf_new(x->arena), expr = strbuf_new(x->arena);
  node_print_shape(&shape, graph->sizes, node);
  if (node->attr.expr) expr_print(&expr, graph->sizes, node->attr.expr);
  return json_pack("{s:s, s:o, s:s, s:s, s:i, s:o, s:o}", "op", op_table[node->op].name, "expr",
                   explorer_text(x, expr.text), "shape", shape.text, "dtype", dtype_names[node->dtype], "module",
                   explorer_module(x, node->origin.path), "lines", explorer_lines(x, &node->origin), "name",
                   explorer_text(x, node->origin.name ? node->origin.name : ""));
}

/* The inputs of the program that a node reads, and the outputs that it is, by name. */
static void add_ports(Explorer *x, const Graph *graph, const Node *node, json_t *made) {
  json_t *reads = json_array(), *gives = json_array();
  for (size_t i = 0; i < node->inputs.n; i++)
    if (node->inputs.items[i]->op == OP_INPUT)
      json_array_append_new(reads, explorer_text(x, node->inputs.items[i]->attr.name));
  for (size_t i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.items[i].node == node)
      json_array_append_new(gives, explorer_text(x, graph->outputs.items[i].name));
  json_object_set_new(made, "reads", reads);
  json_object_set_new(made, "gives", gives);
}

static json_t *inputs_of(const Node *node, const int32_t *numbers) {
  json_t *inputs = json_array();
  for (size_t i = 0; i < node->inputs.n; i++)
    if (numbers[node->inputs.items[i]->id] >= 0)
      json_array_append_new(inputs, json_integer(numbers[node->inputs.items[i]->id]));
  return inputs;
}

int32_t *explorer_operation_numbers(Explorer *x, Graph *graph) {
  int32_t *numbers = ARENA_ARRAY(x->arena, int32_t, graph->next_id + 1), n = 0;
  const bool *is_static = graph_static_flags(x->arena, graph);
  for (const Node *node = graph->first; node; node = node->next)
    numbers[node->id] = is_operation(node) && !is_static[node->id] ? n++ : -1;
  return numbers;
}

static json_t *primitives_of(Explorer *x, Graph *graph, const int32_t *numbers) {
  json_t *list = json_array();
  for (const Node *node = graph->first; node; node = node->next) {
    if (numbers[node->id] < 0) continue;
    json_t *made = operation(x, graph, node);
    json_object_set_new(made, "inputs", inputs_of(node, numbers));
    add_ports(x, graph, node, made);
    json_array_append_new(list, made);
  }
  return list;
}

/* The lines of an operation after the passes are those of all that it computes. */
static json_t *sources_of(Explorer *x, const ExploredProgram *program, const Node *node, const int32_t *numbers,
                          Node *const *written, json_t *lines) {
  json_t *list = json_array();
  const TrackIds *ids = tracks_of(program->tracks, node);
  for (size_t i = 0; ids && i < ids->items.n; i++) {
    const uint32_t id = ids->items.items[i];
    if (numbers[id] < 0) continue;
    json_array_append_new(list, json_integer(numbers[id]));
    explorer_add_lines(x, lines, &written[id]->origin);
  }
  return list;
}

static json_t *steps_of(const ExploredProgram *program, const Node *node) {
  json_t *list = json_array();
  for (size_t i = 0; i < program->plan->step_nodes.n; i++)
    if (program->plan->step_nodes.items[i] == node) json_array_append_new(list, json_integer((json_int_t)i));
  return list;
}

static json_t *ops_of(Explorer *x, const ExploredProgram *program, const int32_t *written_numbers,
                      const int32_t *numbers) {
  Node **written = ARENA_ARRAY(x->arena, Node *, program->written->next_id + 1);
  for (Node *node = program->written->first; node; node = node->next) written[node->id] = node;
  json_t *list = json_array();
  for (const Node *node = program->graph->first; node; node = node->next) {
    if (numbers[node->id] < 0) continue;
    json_t *made = operation(x, program->graph, node);
    json_object_set_new(made, "fused_from", sources_of(x, program, node, written_numbers, written,
                                                       json_object_get(made, "lines")));
    json_object_set_new(made, "steps", steps_of(program, node));
    json_object_set_new(made, "inputs", inputs_of(node, numbers));
    add_ports(x, program->graph, node, made);
    json_array_append_new(list, made);
  }
  return list;
}

/* The op of each step: planning left the ids of the graph dense. */
static void note_ops_of_steps(const ExploredProgram *program, const int32_t *numbers, json_t *steps) {
  for (size_t i = 0; i < program->plan->step_nodes.n; i++) {
    const Node *node = program->plan->step_nodes.items[i];
    json_t *ops = json_array();
    if (node && numbers[node->id] >= 0) json_array_append_new(ops, json_integer(numbers[node->id]));
    json_object_set_new(json_array_get(steps, i), "ops", ops);
  }
}

/* A step has the lines of its op. */
static void note_lines_of_steps(const json_t *ops, json_t *steps) {
  for (size_t i = 0; i < json_array_size(steps); i++) {
    json_t *step = json_array_get(steps, i);
    const json_t *own = json_array_get(json_object_get(step, "ops"), 0);
    const json_t *op = own ? json_array_get(ops, (size_t)json_integer_value(own)) : NULL;
    if (op) json_object_set(step, "lines", json_object_get(op, "lines"));
  }
}

void explorer_add_operations(Explorer *x, uint32_t number, json_t *to) {
  const ExploredProgram *program = &x->programs.items[number];
  const int32_t *written = explorer_operation_numbers(x, program->written);
  const int32_t *numbers = explorer_operation_numbers(x, program->graph);
  json_t *steps = json_object_get(to, "steps");
  json_object_set_new(to, "primitives", primitives_of(x, program->written, written));
  json_object_set_new(to, "ops", ops_of(x, program, written, numbers));
  note_ops_of_steps(program, numbers, steps);
  note_lines_of_steps(json_object_get(to, "ops"), steps);
}

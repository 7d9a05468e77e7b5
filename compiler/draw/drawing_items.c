/* In: items, edges and weights with the paths of their modules, or a graph; see drawing.h. Out: a tree of modules made
 * from the paths. All memory is the drawing's arena. Refused, as internal errors: edges between items that do not
 * exist. */
#include <string.h>

#include "base/check.h"
#include "draw/drawing_parts.h"

/* MAX_DEPTH: an item in a deeper module belongs to the one at that depth, which bounds the recursion over modules. */
enum { NO_ITEM = -1, MAX_DEPTH = 100 };

// ---- making one ----

static Module *module_new(Drawing *drawing, const char *name, Module *parent) {
  Module *module = ARENA_NEW(drawing->arena, Module);
  *module = (Module){.name = name, .parent = parent, .number = drawing->n_modules++, .repeated = 1};
  if (!parent) return module;
  module->depth = parent->depth + 1;
  module->place = (uint32_t)parent->children.n;
  vec_push(drawing->arena, &parent->children, module);
  return module;
}

Drawing *drawing_new(Arena *arena, const char *name) {
  Drawing *drawing = ARENA_NEW(arena, Drawing);
  *drawing = (Drawing){.arena = arena, .modules = map_new(arena)};
  drawing->root = module_new(drawing, name, NULL);
  return drawing;
}

/* The module of a path; those around it are made too. */
static Module *module_of(Drawing *drawing, const char *path) {
  Module *module = drawing->root;
  for (size_t begin = 0; path[begin] && module->depth < MAX_DEPTH;) {
    size_t end = begin + strcspn(path + begin, ".");
    MapEntry *known = map_find(&drawing->modules, path, end);
    if (!known) {
      Module *made = module_new(drawing, arena_strndup(drawing->arena, path + begin, end - begin), module);
      known = map_put_n(&drawing->modules, path, end, made);
    }
    module = known->value;
    begin = path[end] ? end + 1 : end;
  }
  return module;
}

uint32_t drawing_add_item(Drawing *drawing, DrawingLook look, const char *label, const char *path) {
  uint32_t number = (uint32_t)drawing->items.n;
  Module *module = module_of(drawing, path);
  vec_push(drawing->arena, &drawing->items, (Item){.look = look, .label = label, .module = module});
  vec_push(drawing->arena, &module->items, number);
  for (; module; module = module->parent) vec_push(drawing->arena, &module->all, number);
  return number;
}

void drawing_add_edge(Drawing *drawing, uint32_t from, uint32_t to, const char *label) {
  CHECK(from < to && to < drawing->items.n, "an edge from item %u to item %u", from, to);
  vec_push(drawing->arena, &drawing->items.items[to].inputs, (Edge){from, label});
}

void drawing_add_weight(Drawing *drawing, const char *path, const char *text, double elements) {
  vec_push(drawing->arena, &module_of(drawing, path)->weights, (Weight){text, elements});
}

// ---- a graph ----

static const char *label_of(Arena *arena, const Graph *graph, const Node *node) {
  StrBuf label = strbuf_new(arena);
  strbuf_add(&label, node->op == OP_INPUT ? "" : op_table[node->op].name);
  if (node->attr.name) strbuf_add(&label, text_shown(arena, node->attr.name));
  if (node->attr.expr) {
    strbuf_add_char(&label, '\n');
    expr_print(&label, graph->sizes, node->attr.expr);
  }
  return label.text;
}

/* What an edge carries: the name that the model gives the value, if any, and its shape. */
static const char *flow_of(Arena *arena, const Graph *graph, const Node *node) {
  StrBuf label = strbuf_new(arena);
  if (node->op == OP_INPUT) strbuf_printf(&label, "%s ", text_shown(arena, node->attr.name));
  else if (node->origin.name) strbuf_printf(&label, "%s ", node->origin.name);
  node_print_shape(&label, graph->sizes, node);
  return label.text;
}

/* Weights stand in the box of their module under the last part of their name. */
static void add_weight(Drawing *drawing, const Graph *graph, const Node *node) {
  StrBuf text = strbuf_new(drawing->arena);
  const char *dot = strrchr(node->attr.name, '.');
  strbuf_printf(&text, "%s ", text_shown(drawing->arena, dot ? dot + 1 : node->attr.name));
  node_print_shape(&text, graph->sizes, node);
  double elements = 1;
  for (uint32_t axis = 0; axis < node->rank; axis++) {
    int64_t dim = 1;
    size_is_const(node->dims[axis], &dim);
    elements *= (double)dim;
  }
  drawing_add_weight(drawing, node->origin.path, text.text, elements);
}

Drawing *drawing_of_graph(Arena *arena, Graph *graph) {
  graph_renumber(graph);
  Drawing *drawing = drawing_new(arena, graph->name);
  const bool *is_static = graph_static_flags(arena, graph);
  int64_t *item_of = ARENA_ARRAY(arena, int64_t, graph_count(graph));
  for (const Node *node = graph->first; node; node = node->next) {
    item_of[node->id] = NO_ITEM;
    if (node->op == OP_WEIGHT) add_weight(drawing, graph, node);
    if (is_static[node->id]) continue;
    DrawingLook look = node->op == OP_INPUT ? DRAW_PORT
                       : op_table[node->op].category == CATEGORY_VIEW ? DRAW_VIEW : DRAW_OPERATION;
    uint32_t item = drawing_add_item(drawing, look, label_of(arena, graph, node), node->origin.path);
    item_of[node->id] = item;
    for (size_t i = 0; i < node->inputs.n; i++) {
      const Node *input = node->inputs.items[i];
      if (item_of[input->id] != NO_ITEM)
        drawing_add_edge(drawing, (uint32_t)item_of[input->id], item, flow_of(arena, graph, input));
    }
  }
  for (size_t i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.items[i];
    uint32_t item = drawing_add_item(drawing, DRAW_PORT, text_shown(arena, output->name), "");
    if (item_of[output->node->id] == NO_ITEM) continue; /* a constant of the weights */
    drawing_add_edge(drawing, (uint32_t)item_of[output->node->id], item, flow_of(arena, graph, output->node));
  }
  return drawing;
}

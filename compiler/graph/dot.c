/* In: a graph. Out: a picture of it for Graphviz: a node is labelled with its operation, an edge with the shape that
 * flows along it, and modules are boxes in boxes: layers.0.self_attn stands in layers.0 in layers. */
#include <string.h>

#include "graph/graph.h"

typedef struct Module Module;
struct Module {
  const char *name; /* the last part of the path */
  VEC(Module *) children;
  VEC(const Node *) nodes;
};

typedef struct Dot {
  StrBuf *out;
  const Graph *graph;
  Map modules; /* path -> Module * */
  int n_clusters;
} Dot;

/* The module of a path; those around it are made too. */
static Module *module_of(Dot *dot, const char *path, size_t length) {
  MapEntry *known = map_find(&dot->modules, path, length);
  if (known) return known->value;
  Module *module = ARENA_NEW(dot->out->arena, Module);
  map_put_n(&dot->modules, path, length, module);
  if (!length) return module;
  size_t begin = length;
  while (begin > 0 && path[begin - 1] != '.') begin--;
  module->name = arena_strndup(dot->out->arena, path + begin, length - begin);
  Module *around = module_of(dot, path, begin ? begin - 1 : 0);
  vec_push(dot->out->arena, &around->children, module);
  return module;
}

enum { MAX_DEPTH = 100 }; /* of boxes; what lies deeper is drawn in the outermost */

static bool too_deep(const char *path) {
  int depth = 0;
  for (; *path; path++) depth += *path == '.';
  return depth >= MAX_DEPTH;
}

static const char *label_of(const Dot *dot, const Node *node) {
  StrBuf label = strbuf_new(dot->out->arena);
  strbuf_add(&label, op_table[node->op].name);
  if (node->attr.name) strbuf_printf(&label, "\n%s", node->attr.name);
  if (node->attr.expr) {
    strbuf_add_char(&label, '\n');
    expr_print(&label, dot->graph->sizes, node->attr.expr);
  }
  return label.text;
}

static const char *look_of(const Node *node) {
  if (node->op == OP_INPUT) return "shape=ellipse, style=bold";
  if (node->op == OP_WEIGHT) return "shape=box, style=dashed";
  if (op_table[node->op].category == CATEGORY_VIEW) return "shape=plaintext";
  return "shape=box, style=rounded";
}

static void indent(const Dot *dot, int depth) {
  for (int i = 0; i < depth; i++) strbuf_add(dot->out, "  ");
}

static void print_module(Dot *dot, const Module *module, int depth) {
  for (size_t i = 0; i < module->nodes.n; i++) {
    const Node *node = module->nodes.items[i];
    indent(dot, depth);
    strbuf_printf(dot->out, "n%u [%s, label=", node->id, look_of(node));
    strbuf_add_quoted(dot->out, label_of(dot, node));
    strbuf_add(dot->out, "];\n");
  }
  for (size_t i = 0; i < module->children.n; i++) {
    indent(dot, depth);
    strbuf_printf(dot->out, "subgraph cluster_%d {\n", dot->n_clusters++);
    indent(dot, depth + 1);
    strbuf_add(dot->out, "label=");
    strbuf_add_quoted(dot->out, module->children.items[i]->name);
    strbuf_add(dot->out, ";\n");
    print_module(dot, module->children.items[i], depth + 1);
    indent(dot, depth);
    strbuf_add(dot->out, "}\n");
  }
}

static void print_edge(Dot *dot, const Node *from, const char *to, uint32_t id) {
  StrBuf shape = strbuf_new(dot->out->arena);
  node_print_shape(&shape, dot->graph->sizes, from);
  strbuf_printf(dot->out, "  n%u -> %s%u [label=", from->id, to, id);
  strbuf_add_quoted(dot->out, shape.text);
  strbuf_add(dot->out, "];\n");
}

void graph_dot(StrBuf *out, Graph *graph) {
  Dot dot = {.out = out, .graph = graph, .modules = map_new(out->arena)};
  graph_renumber(graph);
  Module *root = module_of(&dot, "", 0);
  for (const Node *node = graph->first; node; node = node->next) {
    const char *path = too_deep(node->origin.path) ? "" : node->origin.path;
    Module *module = module_of(&dot, path, strlen(path));
    vec_push(out->arena, &module->nodes, node);
  }
  strbuf_add(out, "digraph ");
  strbuf_add_quoted(out, graph->name);
  strbuf_add(out, " {\n  node [fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=9];\n");
  print_module(&dot, root, 1);
  for (uint32_t i = 0; i < graph->outputs.n; i++) {
    strbuf_printf(out, "  o%u [shape=ellipse, style=bold, label=", i);
    strbuf_add_quoted(out, graph->outputs.items[i].name);
    strbuf_add(out, "];\n");
  }
  for (const Node *node = graph->first; node; node = node->next) {
    for (size_t i = 0; i < node->inputs.n; i++) print_edge(&dot, node->inputs.items[i], "n", node->id);
  }
  for (uint32_t i = 0; i < graph->outputs.n; i++) print_edge(&dot, graph->outputs.items[i].node, "o", i);
  strbuf_add(out, "}\n");
}

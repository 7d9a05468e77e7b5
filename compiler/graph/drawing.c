/* In: items, edges and weights with the paths of their modules; see drawing.h. Out: the text of a picture in Graphviz'
 * dot language. All memory is the drawing's arena. Refused, as internal errors: edges between items that do not exist.
 *
 * First a tree of modules is made from the paths. Then siblings that are equal inside are found by comparing
 * descriptions, and each is drawn as the first of them. What is printed last are boxes from the outside in, and edges
 * between what is drawn. */
#include "graph/drawing.h"

#include <string.h>

#include "base/check.h"

/* MAX_DEPTH: an item in a deeper module belongs to the one at that depth, which bounds the recursion over modules. */
enum { MOST_SOLID = 4, MAX_WEIGHT_LINES = 8, NO_ITEM = -1, MAX_DEPTH = 100 };

typedef struct Module Module;

typedef struct Edge {
  uint32_t from;
  const char *label;
} Edge;

typedef struct Item {
  DrawingLook look;
  const char *label;
  Module *module;
  VEC(Edge) inputs;
  uint32_t members; /* of a kind that it stands for, with itself; 0: it stands for itself */
  const char *last; /* the label of the last of them */
} Item;

typedef struct Weight {
  const char *text;
  double elements; /* of a text that nobody has checked there may be more than an integer holds */
} Weight;

struct Module {
  const char *name; /* the last part of its path; the model's name at the root */
  Module *parent, *first;
  uint32_t depth, number; /* the root has depth 0; number: of its box */
  uint32_t place;         /* index among its siblings */
  VEC(Module *) children;
  VEC(uint32_t) items;    /* its own */
  VEC(uint32_t) all;      /* and those of the modules in it, in the order of the drawing */
  VEC(Weight) weights;    /* its own */
  uint32_t repeated;      /* how many siblings are equal, with this one; 0: an earlier one stands for it */
  VEC(const Module *) equal; /* the other siblings that it stands for */
  const char *inside;     /* what makes siblings equal */
};

struct Drawing {
  Arena *arena;
  VEC(Item) items;
  Map modules; /* path -> Module * */
  Module *root;
  uint32_t n_modules;
};

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

// ---- siblings that are equal ----

static bool is_numbered(const Module *module) {
  return *module->name && module->name[strspn(module->name, "0123456789")] == '\0';
}

static bool is_in(const Module *module, const Module *around) {
  while (module->depth > around->depth) module = module->parent;
  return module == around;
}

static void describe_path(StrBuf *out, const Module *module, const Module *around) {
  if (module == around) return;
  describe_path(out, module->parent, around);
  strbuf_printf(out, ".%s", module->name);
}

static void describe_weights(StrBuf *out, const Module *module) {
  for (size_t i = 0; i < module->weights.n; i++) strbuf_printf(out, "w %s\n", module->weights.items[i].text);
  for (size_t i = 0; i < module->children.n; i++) {
    strbuf_printf(out, "in %s\n", module->children.items[i]->name);
    describe_weights(out, module->children.items[i]);
  }
}

/* Labels and modules of all items, edges inside by number, and what comes from outside by its shape alone. */
static const char *describe(Drawing *drawing, const Module *module, const uint32_t *local) {
  StrBuf out = strbuf_new(drawing->arena);
  for (size_t i = 0; i < module->all.n; i++) {
    const Item *item = &drawing->items.items[module->all.items[i]];
    strbuf_printf(&out, "%u %s ", (unsigned)item->look, item->label);
    describe_path(&out, item->module, module);
    for (size_t k = 0; k < item->inputs.n; k++) {
      uint32_t from = item->inputs.items[k].from;
      if (is_in(drawing->items.items[from].module, module)) strbuf_printf(&out, " %u", local[from]);
      else strbuf_add(&out, " out");
    }
    strbuf_add_char(&out, '\n');
  }
  describe_weights(&out, module);
  return out.text;
}

/* Equal siblings among the children of a module, wherever they stand: the first stands for all of them. Layers of two
 * kinds in turns are two boxes. */
static void find_repetition(Drawing *drawing, Module *parent, uint32_t *local) {
  Map kinds = map_new(drawing->arena);
  for (size_t i = 0; i < parent->children.n; i++) {
    Module *module = parent->children.items[i];
    if (!is_numbered(module)) continue;
    for (size_t k = 0; k < module->all.n; k++) local[module->all.items[k]] = (uint32_t)k;
    module->inside = describe(drawing, module, local);
    Module *first = map_get(&kinds, module->inside);
    if (first && first->all.n == module->all.n) {
      module->repeated = 0;
      module->first = first;
      first->repeated++;
      vec_push(drawing->arena, &first->equal, module);
    } else {
      map_put(&kinds, module->inside, module);
    }
  }
}

typedef struct Picture {
  StrBuf *out;
  Drawing *drawing;
  uint32_t depth;
  int64_t *stands_for; /* per item: the one that is drawn in its place */
  Map edges, labels;   /* that are drawn; of each box and label, how many */
  uint32_t boxes;      /* items and closed modules so far */
} Picture;

/* What is drawn of an item: that of the first of equal siblings, at every level. */
static void find_stand_ins(Picture *picture, Module *module, uint32_t *local) {
  find_repetition(picture->drawing, module, local);
  for (size_t i = 0; i < module->children.n; i++) {
    Module *child = module->children.items[i];
    if (child->depth < picture->depth && child->repeated) find_stand_ins(picture, child, local);
    if (child->repeated) continue;
    for (size_t k = 0; k < child->all.n; k++)
      picture->stands_for[child->all.items[k]] = picture->stands_for[child->first->all.items[k]];
  }
}

// ---- many of a kind ----

/* More boxes than this that look alike and get the same are one. */
enum { MOST_ALIKE = 12, MOST_ROUNDS = 8 };

/* What makes items alike: their module, their look, the operation (of a port: nothing), and where what they get comes
 * from. */
static const char *kind_of(const Picture *picture, const Item *item) {
  StrBuf kind = strbuf_new(picture->drawing->arena);
  strbuf_printf(&kind, "%u %u ", item->module->number, (unsigned)item->look);
  if (item->look != DRAW_PORT) strbuf_add_n(&kind, item->label, strcspn(item->label, "\n"));
  for (size_t i = 0; i < item->inputs.n; i++)
    strbuf_printf(&kind, " %lld", (long long)picture->stands_for[item->inputs.items[i].from]);
  return kind.text;
}

typedef struct Alike {
  VEC(uint32_t) items;
} Alike;

/* One round: those that are alike now get the first as their stand-in, so that what follows them may become alike. */
static bool join_alike(Picture *picture) {
  Drawing *drawing = picture->drawing;
  Map kinds = map_new(drawing->arena);
  for (uint32_t i = 0; i < drawing->items.n; i++) {
    const Item *item = &drawing->items.items[i];
    if (picture->stands_for[i] != i || item->module->depth >= picture->depth || item->members > 1) continue;
    const char *kind = kind_of(picture, item);
    if (!map_has(&kinds, kind)) map_put(&kinds, kind, ARENA_NEW(drawing->arena, Alike));
    Alike *alike = map_get(&kinds, kind);
    vec_push(drawing->arena, &alike->items, i);
  }
  bool any = false;
  for (size_t k = 0; k < kinds.n; k++) {
    const Alike *alike = kinds.items[k].value;
    if (alike->items.n <= MOST_ALIKE) continue;
    any = true;
    Item *first = &drawing->items.items[alike->items.items[0]];
    first->members = (uint32_t)alike->items.n;
    first->last = drawing->items.items[alike->items.items[alike->items.n - 1]].label;
    for (size_t i = 1; i < alike->items.n; i++) picture->stands_for[alike->items.items[i]] = alike->items.items[0];
  }
  return any;
}

static void find_alike(Picture *picture) {
  for (int round = 0; round < MOST_ROUNDS && join_alike(picture); round++)
    for (uint32_t i = 0; i < picture->drawing->items.n; i++)
      picture->stands_for[i] = picture->stands_for[picture->stands_for[i]];
}

// ---- printing ----

static void indent(const Picture *picture, uint32_t depth) {
  for (uint32_t i = 0; i <= depth; i++) strbuf_add(picture->out, "  ");
}

static void print_count(StrBuf *out, double n) {
  if (n >= 1e9) strbuf_printf(out, "%.1f G", n / 1e9);
  else if (n >= 1e6) strbuf_printf(out, "%.1f M", n / 1e6);
  else if (n >= 1e4) strbuf_printf(out, "%.0f k", n / 1e3);
  else strbuf_printf(out, "%.0f", n);
}

static void count_weights(const Module *module, uint32_t *n, double *elements) {
  *n += (uint32_t)module->weights.n;
  for (size_t i = 0; i < module->weights.n; i++) *elements += module->weights.items[i].elements;
  for (size_t i = 0; i < module->children.n; i++) count_weights(module->children.items[i], n, elements);
}

/* "encoder", "0 to 5 (× 6)" for what stands for six, or "0, 3, 6 ... 93 (× 32)" where others stand between them. */
static void print_name(StrBuf *out, const Module *module) {
  strbuf_add(out, module->name);
  if (module->repeated < 2) return;
  enum { LISTED = 2 };
  const Module *last = module->equal.items[module->equal.n - 1];
  if (last->place - module->place + 1 == module->repeated) {
    strbuf_printf(out, " to %s", last->name);
  } else {
    for (size_t i = 0; i < module->equal.n && i < LISTED; i++) strbuf_printf(out, ", %s", module->equal.items[i]->name);
    if (module->equal.n > LISTED) strbuf_printf(out, "%s%s", module->equal.n > LISTED + 1 ? " ... " : ", ", last->name);
  }
  strbuf_printf(out, " (\u00d7 %u)", module->repeated);
}

/* Of a closed module: which of its children are equal. */
static void print_repetition(Picture *picture, StrBuf *out, Module *module) {
  uint32_t *local = ARENA_ARRAY(picture->drawing->arena, uint32_t, picture->drawing->items.n + 1);
  find_repetition(picture->drawing, module, local);
  for (size_t i = 0; i < module->children.n; i++) {
    if (module->children.items[i]->repeated < 2) continue;
    strbuf_add_char(out, '\n');
    print_name(out, module->children.items[i]);
  }
}

/* Name, repeated children, and how many operations and weights are inside. */
static const char *closed_label(Picture *picture, Module *module) {
  StrBuf label = strbuf_new(picture->drawing->arena);
  uint32_t n = 0;
  double elements = 0;
  print_name(&label, module);
  print_repetition(picture, &label, module);
  strbuf_printf(&label, "\n%u operation%s", (unsigned)module->all.n, module->all.n == 1 ? "" : "s");
  count_weights(module, &n, &elements);
  if (n) {
    strbuf_printf(&label, "\n%u weight%s, ", n, n == 1 ? "" : "s");
    print_count(&label, elements);
  }
  return label.text;
}

/* Name and the first weights; more would hide the operations. */
static const char *open_label(Picture *picture, const Module *module) {
  StrBuf label = strbuf_new(picture->drawing->arena);
  print_name(&label, module);
  for (size_t i = 0; i < module->weights.n && i < MAX_WEIGHT_LINES; i++)
    strbuf_printf(&label, "\n%s", module->weights.items[i].text);
  if (module->weights.n > MAX_WEIGHT_LINES)
    strbuf_printf(&label, "\n... %u weights more", (unsigned)(module->weights.n - MAX_WEIGHT_LINES));
  return label.text;
}

/* "y0 to y999 (× 1000)" of ports, "add (× 1000)" of operations: what they compute differs. */
static const char *label_of_item(const Picture *picture, const Item *item) {
  if (item->members < 2) return item->label;
  Arena *arena = picture->drawing->arena;
  if (item->look == DRAW_PORT)
    return arena_printf(arena, "%s to %s (\u00d7 %u)", item->label, item->last, item->members);
  return arena_printf(arena, "%.*s (\u00d7 %u)", (int)strcspn(item->label, "\n"), item->label, item->members);
}

/* A long line is cut in the middle. */
static void add_cut(StrBuf *out, const char *line, size_t length) {
  enum { MOST = 40, KEPT = 18 };
  if (length <= MOST) {
    strbuf_add_n(out, line, length);
    return;
  }
  strbuf_add_n(out, line, KEPT);
  strbuf_add(out, " ... ");
  strbuf_add_n(out, line + length - KEPT, KEPT);
}

/* What stands in a box; the whole text is shown when somebody points at it. */
static void print_label(StrBuf *out, const char *label) {
  StrBuf cut = strbuf_new(out->arena);
  for (const char *line = label; *line;) {
    const size_t length = strcspn(line, "\n");
    add_cut(&cut, line, length);
    line += length;
    if (*line) strbuf_add_char(&cut, *line++);
  }
  strbuf_add(out, "label=");
  strbuf_add_quoted(out, cut.text);
  if (strcmp(cut.text, label) == 0) return;
  strbuf_add(out, ", tooltip=");
  strbuf_add_quoted(out, label);
}

static void print_items(Picture *picture, const Module *module) {
  static const char *const looks[] = {[DRAW_OPERATION] = "shape=box, style=rounded",
                                      [DRAW_VIEW] = "shape=plaintext",
                                      [DRAW_PORT] = "shape=ellipse, style=bold"};
  for (size_t i = 0; i < module->items.n; i++) {
    const uint32_t number = module->items.items[i];
    const Item *item = &picture->drawing->items.items[number];
    if (picture->stands_for[number] != number) continue;
    picture->boxes++;
    indent(picture, module->depth);
    strbuf_printf(picture->out, "n%u [%s, ", number, looks[item->look]);
    print_label(picture->out, label_of_item(picture, item));
    strbuf_add(picture->out, "];\n");
  }
}

/* Each line at the left edge: arrows come in at the middle, and would run through names there. */
static void print_left(StrBuf *out, const char *label) {
  strbuf_add(out, "label=\"");
  while (*label) {
    const size_t length = strcspn(label, "\n");
    StrBuf line = strbuf_new(out->arena);
    strbuf_add_quoted(&line, arena_strndup(out->arena, label, length));
    strbuf_add_n(out, line.text + 1, line.length - 2);
    strbuf_add(out, "\\l");
    label += length + (label[length] != '\0');
  }
  strbuf_add_char(out, '"');
}

/* Open modules are clusters. They are few at each level that a picture can show, and as deep as `depth` says. */
static void print_module(Picture *picture, Module *module) {
  if (!module->repeated || !module->all.n) return;
  indent(picture, module->depth);
  if (module->depth >= picture->depth) {
    picture->boxes++;
    strbuf_printf(picture->out, "m%u [shape=box3d, label=", module->number);
    strbuf_add_quoted(picture->out, closed_label(picture, module));
    strbuf_add(picture->out, "];\n");
    return;
  }
  strbuf_printf(picture->out, "subgraph cluster_%u {\n", module->number);
  indent(picture, module->depth + 1);
  print_left(picture->out, open_label(picture, module));
  strbuf_add(picture->out, ";\n");
  print_items(picture, module);
  for (size_t i = 0; i < module->children.n; i++) print_module(picture, module->children.items[i]);
  indent(picture, module->depth);
  strbuf_add(picture->out, "}\n");
}

/* "n7" of an item, or "m3" of the closed module that it is in. */
static const char *element_of(const Picture *picture, uint32_t item) {
  item = (uint32_t)picture->stands_for[item];
  const Module *module = picture->drawing->items.items[item].module;
  if (module->depth < picture->depth) return arena_printf(picture->drawing->arena, "n%u", item);
  while (module->depth > picture->depth) module = module->parent;
  return arena_printf(picture->drawing->arena, "m%u", module->number);
}

static const Module *group_of(const Module *module) { return module->first ? module->first : module; }

/* Whether an edge is left out though both of its ends are drawn: one from a sibling to an equal sibling, or back to a
 * kind that was drawn before, since names and counts say how they follow one another; or one inside of a sibling that
 * an equal one stands for. */
static bool is_left_out(const Picture *picture, uint32_t from, uint32_t to) {
  const Module *a = picture->drawing->items.items[from].module, *b = picture->drawing->items.items[to].module;
  const Module *of_a = NULL, *of_b = NULL; /* children of the module around both */
  while (a != b) {
    const bool is_deeper = a->depth >= b->depth;
    if (b->depth >= a->depth) of_b = b, b = b->parent;
    if (is_deeper) of_a = a, a = a->parent;
  }
  if (of_a && of_b && a->repeated) {
    const Module *from_group = group_of(of_a), *to_group = group_of(of_b);
    const bool is_back = (of_a->first || of_b->first) && to_group->place < from_group->place;
    if (from_group == to_group || is_back) return true;
  }
  while (a && a->repeated) a = a->parent;
  return a != NULL;
}

/* How many edges with this label a box has so far. */
static uint32_t *count_of(Picture *picture, const char *begin, const char *label) {
  const char *key = arena_printf(picture->drawing->arena, "%s %s", begin, label);
  uint32_t *count = map_get(&picture->labels, key);
  if (!count) map_put(&picture->labels, key, count = ARENA_NEW(picture->drawing->arena, uint32_t));
  return count;
}

/* Edges between the same two boxes with the same label are one. The first edge of a value says what it is, since labels
 * take more room than boxes; of one that goes to many, such as a mask, the later ones are dotted. */
static void print_edge(Picture *picture, uint32_t from, uint32_t to, const char *label) {
  const char *begin = element_of(picture, from), *end = element_of(picture, to);
  if (strcmp(begin, end) == 0 || is_left_out(picture, from, to)) return;
  const char *key = arena_printf(picture->drawing->arena, "%s %s %s", begin, end, label);
  if (map_has(&picture->edges, key)) return;
  map_put(&picture->edges, key, NULL);
  strbuf_printf(picture->out, "  %s -> %s [", begin, end);
  const uint32_t before = (*count_of(picture, begin, label))++;
  strbuf_add(picture->out, before == 0 ? "label=" : before < MOST_SOLID ? "tooltip=" : "style=dotted, tooltip=");
  strbuf_add_quoted(picture->out, label);
  strbuf_add(picture->out, "];\n");
}

uint32_t drawing_print(StrBuf *out, Drawing *drawing, uint32_t depth) {
  uint32_t n = (uint32_t)drawing->items.n;
  uint32_t *local = ARENA_ARRAY(drawing->arena, uint32_t, n + 1);
  Picture picture = {.out = out, .drawing = drawing, .depth = depth, .edges = map_new(drawing->arena),
                     .labels = map_new(drawing->arena),
                     .stands_for = ARENA_ARRAY(drawing->arena, int64_t, n + 1)};
  for (uint32_t i = 0; i < n; i++) picture.stands_for[i] = i;
  if (depth > 0) find_stand_ins(&picture, drawing->root, local);
  find_alike(&picture);
  strbuf_add(out, "digraph ");
  strbuf_add_quoted(out, drawing->root->name);
  strbuf_add(out, " {\n  node [fontname=\"sans-serif\", fontsize=11];\n"
                  "  edge [fontname=\"sans-serif\", fontsize=8];\n"
                  "  graph [fontname=\"sans-serif\", style=rounded, labeljust=l, nodesep=0.12];\n");
  print_module(&picture, drawing->root);
  for (uint32_t to = 0; to < n; to++) {
    const Item *item = &drawing->items.items[to];
    for (size_t k = 0; k < item->inputs.n; k++)
      print_edge(&picture, item->inputs.items[k].from, to, item->inputs.items[k].label);
  }
  strbuf_add(out, "}\n");
  return picture.boxes;
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

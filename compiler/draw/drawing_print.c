/* In: a drawing. Out: its text: boxes from the outside in, then the lines between them; see drawing.h. Refuses
 * nothing. */
#include <string.h>

#include "draw/drawing_parts.h"

/* Points between a frame and what is in it. Lines that go around boxes stay within the frame of the model so. */
enum { MAX_WEIGHT_LINES = 8, MARGIN = 8, MARGIN_OF_MODEL = 32 };

// ---- labels ----

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
  drawing_find_repetition(picture->drawing, module, local);
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

/* "y0 to y999 (× 1000)" of ports, "add (× 1000)" of operations, whose expressions differ. */
static const char *label_of_item(const Picture *picture, const Item *item) {
  if (item->members < 2) return item->label;
  Arena *arena = picture->drawing->arena;
  if (item->look == DRAW_PORT)
    return arena_printf(arena, "%s to %s (\u00d7 %u)", item->label, item->last, item->members);
  const size_t shown = item->look == DRAW_VIEW ? strlen(item->label) : strcspn(item->label, "\n");
  return arena_printf(arena, "%.*s (\u00d7 %u)", (int)shown, item->label, item->members);
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

/* With what a box gets without a line, below. */
static const char *with_flags(const Picture *picture, const char *label, const char *box) {
  const char *flags = map_get(&picture->flags, box);
  return flags ? arena_printf(picture->drawing->arena, "%s%s", label, flags) : label;
}

static void print_item(Picture *picture, uint32_t number) {
  static const char *const looks[] = {[DRAW_OPERATION] = "shape=box, style=rounded",
                                      [DRAW_VIEW] = "shape=plaintext",
                                      [DRAW_PORT] = "shape=ellipse, style=bold"};
  const Item *item = &picture->drawing->items.items[number];
  if (picture->stands_for[number] != number) return;
  picture->boxes++;
  indent(picture, item->module->depth);
  strbuf_printf(picture->out, "n%u [%s, ", number, looks[item->look]);
  print_label(picture->out, with_flags(picture, label_of_item(picture, item), drawing_box_of(picture, number)));
  strbuf_add(picture->out, "];\n");
}

static void print_closed(Picture *picture, Module *module) {
  const char *box = arena_printf(picture->drawing->arena, "m%u", module->number);
  picture->boxes++;
  indent(picture, module->depth);
  strbuf_printf(picture->out, "%s [shape=box3d, label=", box);
  strbuf_add_quoted(picture->out, with_flags(picture, closed_label(picture, module), box));
  strbuf_add(picture->out, "];\n");
}

static void print_points(const Picture *picture, const Module *module) {
  for (size_t i = 0; i < picture->points[module->number].n; i++) {
    indent(picture, module->depth);
    strbuf_printf(picture->out, "p%u [shape=point, width=0.04];\n", picture->points[module->number].items[i]);
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

/* Open modules are clusters. They are few at each level that a picture can show, and as deep as `depth` says. What is
 * in them is printed in the order of the drawing: dot turns those lines of a circle around that lead back in it, and a
 * closed module that takes what it gave is such a circle. */
static void print_module(Picture *picture, Module *module) {
  if (!module->repeated || !module->all.n) return;
  if (module->depth >= picture->depth) {
    print_closed(picture, module);
    return;
  }
  indent(picture, module->depth);
  strbuf_printf(picture->out, "subgraph cluster_%u {\n", module->number);
  indent(picture, module->depth + 1);
  print_left(picture->out, open_label(picture, module));
  strbuf_printf(picture->out, "; margin=%d;\n", module->parent ? MARGIN : MARGIN_OF_MODEL);
  print_points(picture, module);
  bool *is_printed = ARENA_ARRAY(picture->drawing->arena, bool, module->children.n + 1);
  for (size_t i = 0; i < module->all.n; i++) {
    Module *inner = picture->drawing->items.items[module->all.items[i]].module;
    if (inner == module) {
      print_item(picture, module->all.items[i]);
      continue;
    }
    while (inner->parent != module) inner = inner->parent;
    if (!is_printed[inner->place]) print_module(picture, inner);
    is_printed[inner->place] = true;
  }
  indent(picture, module->depth);
  strbuf_add(picture->out, "}\n");
}

uint32_t drawing_print(StrBuf *out, Drawing *drawing, uint32_t depth) {
  Arena *arena = drawing->arena;
  Picture picture = {.out = out, .drawing = drawing, .depth = depth,
                     .lines = strbuf_new(arena), .flags = map_new(arena),
                     .stands_for = ARENA_ARRAY(arena, int64_t, drawing->items.n + 1)};
  picture.points = arena_array(arena, drawing->n_modules, sizeof *picture.points);
  drawing_fold(&picture);
  drawing_find_lines(&picture);
  strbuf_add(out, "digraph ");
  strbuf_add_quoted(out, drawing->root->name);
  strbuf_add(out, " {\n  node [fontname=\"sans-serif\", fontsize=11];\n"
                  "  edge [fontname=\"sans-serif\", fontsize=8];\n"
                  "  graph [fontname=\"sans-serif\", style=rounded, labeljust=l, nodesep=0.12, ranksep=0.3, "
                  "compound=true];\n");
  print_module(&picture, drawing->root);
  strbuf_add(out, picture.lines.text);
  strbuf_add(out, "}\n");
  return picture.boxes;
}

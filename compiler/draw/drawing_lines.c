/* In: the modules, items and edges of a drawing that is folded. Out: the lines between what is drawn, as text, the
 * points where they come into open modules, and what boxes get without a line.
 *
 * A value comes into an open module once, at a point inside of its frame, whoever takes it there. The line to the point
 * ends at the frame, so none runs through the name that stands there. A value that was drawn once, and goes from there
 * into a frame where its first line does not go, is a flag: a line of text in the box that takes it. So are lines of a
 * value that goes to many boxes. Masks and angles, which every layer takes, are neither lines across the picture nor in
 * the way of other lines. A box keeps one line, even if all of its inputs could be flags. Refuses nothing. */
#include <string.h>

#include "draw/drawing_parts.h"

enum { MOST_LINES = 2, MOST_SOLID = 4 }; /* of a value; the next ones are flags, and dotted if they are not */

typedef struct Value { /* what leaves one box under one label */
  const char *box, *label, *flag;
  const Module *first; /* the open module that its first line ends in */
  uint32_t n;          /* boxes that take it */
  uint32_t n_lines;    /* that begin at its box */
} Value;

typedef struct Line {
  Value *value;
  const Module *from, *to; /* the open modules around its ends */
  const char *end;
  bool is_flag;
} Line;

typedef struct Lines {
  VEC(Line) items;
  Map values, known; /* of each box and label; of each box, label and box */
  Map has_line;      /* boxes that get one */
} Lines;

const char *drawing_box_of(const Picture *picture, uint32_t item) {
  item = (uint32_t)picture->stands_for[item];
  const Module *module = picture->drawing->items.items[item].module;
  if (module->depth < picture->depth) return arena_printf(picture->drawing->arena, "n%u", item);
  while (module->depth > picture->depth) module = module->parent;
  return arena_printf(picture->drawing->arena, "m%u", module->number);
}

/* The open module around a box. NULL: the model itself is closed. */
static const Module *open_around(const Picture *picture, uint32_t item) {
  const Module *module = picture->drawing->items.items[picture->stands_for[item]].module;
  while (module && module->depth >= picture->depth) module = module->parent;
  return module;
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

// ---- flags ----

static void add_path(StrBuf *out, const Module *module) {
  if (!module->parent) return;
  if (module->parent->parent) {
    add_path(out, module->parent);
    strbuf_add_char(out, '.');
  }
  strbuf_add(out, module->name);
}

/* "← layers.0: hidden": the module that a value comes from and its name; of one without a name the operation, or the
 * closed module alone. */
static const char *flag_of(const Picture *picture, uint32_t from, const char *label) {
  const Item *item = &picture->drawing->items.items[picture->stands_for[from]];
  StrBuf flag = strbuf_new(picture->drawing->arena);
  const Module *module = item->module;
  while (module->depth > picture->depth) module = module->parent;
  const bool is_closed = module->depth == picture->depth;
  const size_t name = strcspn(label, " ["); /* "hidden f32[batch, 64]", or "f32[batch, 64]" of a value without a name */
  strbuf_add(&flag, "\u2190 ");
  add_path(&flag, module);
  if (label[name] == ' ' || !is_closed) {
    if (module->parent) strbuf_add(&flag, ": ");
    if (label[name] == ' ') strbuf_add_n(&flag, label, name);
    else strbuf_add_n(&flag, item->label, strcspn(item->label, "\n"));
  }
  return flag.text;
}

/* Whether a line comes into an open module where the first of its value does not go. */
static bool enters_another(const Line *line) {
  for (const Module *module = line->to; !drawing_is_in(line->from, module); module = module->parent)
    if (!drawing_is_in(line->value->first, module)) return true;
  return false;
}

static void add_flag(Picture *picture, const Line *line) {
  const char *before = map_get(&picture->flags, line->end), *flag = line->value->flag;
  if (before && strstr(before, flag)) return;
  map_put(&picture->flags, line->end,
          (void *)arena_printf(picture->drawing->arena, "%s\n%s", before ? before : "", flag));
}

// ---- which lines there are ----

static void add_line(Picture *picture, Lines *lines, uint32_t from, uint32_t to, const char *label) {
  Arena *arena = picture->drawing->arena;
  const char *begin = drawing_box_of(picture, from), *end = drawing_box_of(picture, to);
  if (strcmp(begin, end) == 0 || is_left_out(picture, from, to)) return;
  const char *of_value = arena_printf(arena, "%s %s", begin, label), *key = arena_printf(arena, "%s %s", end, of_value);
  if (map_has(&lines->known, key)) return;
  map_put(&lines->known, key, NULL);
  Value *value = map_get(&lines->values, of_value);
  if (!value) {
    map_put(&lines->values, of_value, value = ARENA_NEW(arena, Value));
    *value = (Value){.box = begin, .label = label, .flag = flag_of(picture, from, label)};
    value->first = open_around(picture, to);
  }
  Line line = {value, open_around(picture, from), open_around(picture, to), end, false};
  line.is_flag = value->n++ > 0 && (value->n > MOST_LINES || enters_another(&line));
  if (!line.is_flag) map_put(&lines->has_line, end, value);
  vec_push(arena, &lines->items, line);
}

/* Of a box that would have flags alone the first is a line. */
static void keep_one_line_each(Lines *lines) {
  for (size_t i = 0; i < lines->items.n; i++) {
    Line *line = &lines->items.items[i];
    if (map_has(&lines->has_line, line->end)) continue;
    map_put(&lines->has_line, line->end, line->value);
    line->is_flag = false;
  }
}

// ---- printing ----

static void begin_line(Picture *picture, const char *from, const char *to) {
  strbuf_printf(&picture->lines, "  %s -> %s [", from, to);
}

/* The first line of a value says what it is, since labels take more room than boxes. */
static void end_line(Picture *picture, Value *value, bool is_first_part) {
  StrBuf *out = &picture->lines;
  const uint32_t before = is_first_part ? value->n_lines++ : 1;
  strbuf_add(out, before == 0 ? "label=" : before < MOST_SOLID ? "tooltip=" : "style=dotted, tooltip=");
  strbuf_add_quoted(out, value->label);
  strbuf_add(out, "];\n");
}

/* The point inside of an open module's frame where the value comes in, with the line to it. */
static const char *point_in(Picture *picture, Map *points, const Line *line, const Module *module) {
  if (drawing_is_in(line->from, module)) return line->value->box;
  const char *key = arena_printf(picture->drawing->arena, "%u %s %s", module->number, line->value->box,
                                 line->value->label);
  const char *point = map_get(points, key);
  if (point) return point;
  const char *from = point_in(picture, points, line, module->parent);
  const uint32_t number = picture->n_points++;
  vec_push(picture->drawing->arena, &picture->points[module->number], number);
  map_put(points, key, (void *)(point = arena_printf(picture->drawing->arena, "p%u", number)));
  begin_line(picture, from, point);
  strbuf_printf(&picture->lines, "lhead=cluster_%u, arrowhead=none, ", module->number);
  end_line(picture, line->value, from == line->value->box);
  return point;
}

void drawing_find_lines(Picture *picture) {
  Drawing *drawing = picture->drawing;
  Arena *arena = drawing->arena;
  Lines lines = {.values = map_new(arena), .known = map_new(arena), .has_line = map_new(arena)};
  for (uint32_t to = 0; to < drawing->items.n; to++) {
    const Item *item = &drawing->items.items[to];
    for (size_t k = 0; k < item->inputs.n; k++)
      add_line(picture, &lines, item->inputs.items[k].from, to, item->inputs.items[k].label);
  }
  keep_one_line_each(&lines);
  Map points = map_new(arena);
  for (size_t i = 0; i < lines.items.n; i++) {
    const Line *line = &lines.items.items[i];
    if (line->is_flag) {
      add_flag(picture, line);
      continue;
    }
    const char *from = point_in(picture, &points, line, line->to);
    begin_line(picture, from, line->end);
    end_line(picture, line->value, from == line->value->box);
  }
}

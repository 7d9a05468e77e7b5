/* The places of a map: its levels as pictures for `dot`, and what `dot` says of them.
 *
 * In: the levels of all programs. Out: JSON. All pictures go to one process, since to start it takes longer than a
 * picture does. Graphviz gives up some pictures with curved lines, so all are tried with straight ones then. Without
 * `dot`, or if it fails at both, levels have boxes and lines without places, and a note says why. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw/dot.h"
#include "explore/map_data.h"

enum { POINTS_OF_AN_INCH = 72, MOST_LABEL = 40, KEPT = 18, MOST_AT_EASE = 40 };

typedef struct Picture {
  const MapLevel *level;
  json_t *made;
} Picture;

typedef struct Layout {
  Explorer *x;
  VEC(Picture) pictures; /* in the order of the text */
  StrBuf dot;
} Layout;

// ---- what `dot` gets ----

/* Larger pictures have smaller letters, which the page takes from the number of boxes too. A long label is cut in the
 * middle: the page has the whole when it is pointed at. */
static const char *cut(Arena *arena, const char *label) {
  const size_t n = strlen(label);
  return n <= MOST_LABEL ? label : arena_printf(arena, "%.*s ... %s", KEPT, label, label + n - KEPT);
}

static const char *label_of(Arena *arena, const MapBox *box) {
  const char *label = cut(arena, box->label);
  return box->times > 1 ? arena_printf(arena, "%s (\u00d7 %u)", label, box->times) : label;
}

static void add_picture(Layout *layout, const MapLevel *level) {
  StrBuf *out = &layout->dot;
  const bool is_dense = level->boxes.n > MOST_AT_EASE;
  strbuf_printf(out,
                "digraph {\n  node [fontname=\"sans-serif\", fontsize=%d, shape=box, margin=\"%s\", height=0.3, "
                "width=0.4];\n  graph [nodesep=%s, ranksep=0.28];\n",
                is_dense ? 8 : 11, is_dense ? "0.05,0.03" : "0.1,0.04", is_dense ? "0.07" : "0.15");
  for (size_t i = 0; i < level->boxes.n; i++) {
    strbuf_printf(out, "  n%zu [label=", i);
    strbuf_add_quoted(out, label_of(layout->x->arena, &level->boxes.items[i]));
    strbuf_add(out, "];\n");
  }
  for (size_t i = 0; i < level->lines.n; i++)
    strbuf_printf(out, "  n%u -> n%u [id=l%zu];\n", level->lines.items[i].from, level->lines.items[i].to, i);
  strbuf_add(out, "}\n");
}

// ---- what it says ----

static double number_in(const json_t *object, const char *name) {
  return number_read(json_string_value(json_object_get(object, name)));
}

static json_t *rounded(double value) { return json_real(round(10 * value) / 10); }

/* "e,x,y x,y x,y ...": the end of the arrow comes first. Upwards in `dot` is downwards in a page. */
static json_t *points_of(const char *text, double height) {
  json_t *points = json_array(), *end = json_array();
  while (*text) {
    const bool is_end = strncmp(text, "e,", 2) == 0, is_begin = strncmp(text, "s,", 2) == 0;
    if (is_end || is_begin) text += 2;
    const char *comma = strchr(text, ',');
    if (!comma) break;
    json_t *to = is_end ? end : points;
    json_array_append_new(to, json_integer(lround(number_read(text))));
    json_array_append_new(to, json_integer(lround(height - number_read(comma + 1))));
    text = comma + strcspn(comma, " ");
    while (*text == ' ') text++;
  }
  json_array_extend(points, end);
  json_decref(end);
  return points;
}

/* "n7" -> 7 */
static size_t number_of(const json_t *object, const char *name, char letter) {
  const char *text = json_string_value(json_object_get(object, name));
  return text && *text == letter ? (size_t)strtoul(text + 1, NULL, 10) : SIZE_MAX;
}

static void place_box(const json_t *object, double height, const json_t *boxes) {
  json_t *box = json_array_get(boxes, number_of(object, "name", 'n'));
  const char *pos = json_string_value(json_object_get(object, "pos"));
  if (!box || !pos || !strchr(pos, ',')) return;
  const double w = POINTS_OF_AN_INCH * number_in(object, "width"), h = POINTS_OF_AN_INCH * number_in(object, "height");
  json_object_set_new(box, "x", rounded(number_read(pos) - w / 2));
  json_object_set_new(box, "y", rounded(height - number_read(strchr(pos, ',') + 1) - h / 2));
  json_object_set_new(box, "w", rounded(w));
  json_object_set_new(box, "h", rounded(h));
}

/* False if the picture has no size. */
static bool place_picture(const json_t *picture, json_t *level) {
  const char *frame = json_string_value(json_object_get(picture, "bb"));
  double size[4] = {0};
  for (int i = 0; frame && i < 4; i++) {
    size[i] = number_read(frame);
    frame = strchr(frame, ',');
    if (frame) frame++;
  }
  if (size[2] <= 0) return false;
  json_object_set_new(level, "w", rounded(size[2]));
  json_object_set_new(level, "h", rounded(size[3]));
  size_t i;
  json_t *object;
  json_array_foreach(json_object_get(picture, "objects"), i, object)
      place_box(object, size[3], json_object_get(level, "boxes"));
  json_array_foreach(json_object_get(picture, "edges"), i, object) {
    json_t *line = json_array_get(json_object_get(level, "lines"), number_of(object, "id", 'l'));
    const char *pos = json_string_value(json_object_get(object, "pos"));
    if (line && pos) json_object_set_new(line, "points", points_of(pos, size[3]));
  }
  return true;
}

/* One value for each picture, one behind the other. */
static bool read_places(const Layout *layout, const StrBuf *text) {
  size_t at = 0;
  for (size_t i = 0; i < layout->pictures.n; i++) {
    json_error_t error;
    json_t *picture = json_loadb(text->text + at, text->length - at, JSON_DISABLE_EOF_CHECK, &error);
    const bool is_placed = picture && place_picture(picture, layout->pictures.items[i].made);
    json_decref(picture);
    if (!is_placed) return false;
    at += (size_t)error.position;
  }
  return true;
}

static void lay_out(Layout *layout, json_t *notes) {
  static const char *const lines[] = {"spline", "line"};
  const char *why = "`dot` cannot lay them out";
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    const DotAttempt attempt = dot_attempt(layout->x->arena, &layout->dot, "json0", lines[i]);
    if (!attempt.error && !attempt.status && read_places(layout, &attempt.picture)) return;
    if (attempt.error == ENOENT) why = "the program `dot` of Graphviz was not found";
  }
  json_array_append_new(notes, json_string(arena_printf(layout->x->arena, "Maps are lists: %s.", why)));
}

// ---- the data ----

static json_t *boxes_of(Explorer *x, const MapLevel *level) {
  json_t *boxes = json_array();
  for (size_t i = 0; i < level->boxes.n; i++) {
    const MapBox *box = &level->boxes.items[i];
    json_t *made = json_pack("{s:o, s:s, s:i}", "label", explorer_text(x, box->label), "kind", box->kind, "times",
                             (int)box->times);
    if (box->item >= 0) json_object_set_new(made, "op", json_integer(box->item));
    if (box->module >= 0) json_object_set_new(made, "module", json_integer(box->module));
    json_array_append_new(boxes, made);
  }
  return boxes;
}

static json_t *level_of(Explorer *x, const MapLevel *level) {
  json_t *modules = json_array(), *lines = json_array();
  for (size_t i = 0; i < level->modules.n; i++) json_array_append_new(modules, json_integer(level->modules.items[i]));
  for (size_t i = 0; i < level->lines.n; i++)
    json_array_append_new(lines, json_pack("{s:i, s:i}", "from", (int)level->lines.items[i].from, "to",
                                           (int)level->lines.items[i].to));
  return json_pack("{s:o, s:o, s:o}", "modules", modules, "boxes", boxes_of(x, level), "lines", lines);
}

static json_t *map_of(Layout *layout, uint32_t program, const char *name, const json_t *items) {
  const MapLevels levels = map_levels(layout->x, items);
  json_t *list = json_array();
  for (size_t i = 0; i < levels.all.n; i++) {
    json_t *made = level_of(layout->x, levels.all.items[i]);
    json_array_append_new(list, made);
    if (!levels.all.items[i]->boxes.n) continue;
    add_picture(layout, levels.all.items[i]);
    vec_push(layout->x->arena, &layout->pictures, (Picture){levels.all.items[i], made});
  }
  return json_pack("{s:i, s:s, s:o}", "program", (int)program, "level", name, "levels", list);
}

json_t *explorer_maps(Explorer *x, const json_t *programs, json_t *notes) {
  Layout layout = {.x = x, .dot = strbuf_new(x->arena)};
  json_t *maps = json_array();
  for (uint32_t p = 0; p < json_array_size(programs); p++) {
    const json_t *program = json_array_get(programs, p);
    json_array_append_new(maps, map_of(&layout, p, "fused", json_object_get(program, "ops")));
    json_array_append_new(maps, map_of(&layout, p, "primitive", json_object_get(program, "primitives")));
    json_array_append_new(maps, map_of(&layout, p, "plan", json_object_get(program, "steps")));
  }
  if (layout.pictures.n) lay_out(&layout, notes);
  return maps;
}

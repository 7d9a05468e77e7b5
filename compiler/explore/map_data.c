/* The map: for each module a small picture of its inside, with the modules in it closed.
 *
 * * In: the operations of a program, as written or after the passes, or its steps, with their modules, inputs and
 * outputs. Out: levels. Equal insides are one level; siblings that are numbered and equal inside are one box; so are
 * many operations that look alike and have the same inputs. A module that holds one other module alone is drawn as that
 * one. Refuses nothing. */
#include "explore/map_data.h"

#include <string.h>

enum { MOST_ALIKE = 12, MOST_PORTS = 4 }; /* operations, inputs of the model that have a box each */

typedef struct Room { /* what is in a module */
  VEC(uint32_t) children; /* modules, in the order in which operations stand in them first */
  VEC(uint32_t) items;    /* its own operations */
  VEC(uint32_t) all;      /* and those of the modules in it */
  int32_t level;          /* its number; -1: it is not known yet */
} Room;

typedef struct Mapper {
  Explorer *x;
  const json_t *items;
  int32_t *parents; /* of modules */
  Room *rooms;
  MapLevels levels;
  Map known; /* text of a level -> number + 1 */
} Mapper;

static const json_t *item_at(const Mapper *m, size_t i) { return json_array_get(m->items, i); }

static const char *path_of(const Mapper *m, uint32_t module) {
  return json_string_value(json_object_get(json_array_get(m->x->module_list, module), "path"));
}

static bool is_numbered(const char *path) {
  const char *dot = strrchr(path, '.'), *name = dot ? dot + 1 : path;
  return *name && name[strspn(name, "0123456789")] == '\0';
}

// ---- the tree of modules that have operations ----

static void add_child(Mapper *m, uint32_t parent, uint32_t child) {
  Room *room = &m->rooms[parent];
  for (size_t i = room->children.n; i-- > 0;)
    if (room->children.items[i] == child) return;
  vec_push(m->x->arena, &room->children, child);
}

static void fill_rooms(Mapper *m) {
  const size_t n = json_array_size(m->x->module_list);
  m->rooms = ARENA_ARRAY(m->x->arena, Room, n);
  m->parents = ARENA_ARRAY(m->x->arena, int32_t, n);
  for (size_t i = 0; i < n; i++) {
    m->rooms[i].level = -1;
    m->parents[i] = (int32_t)json_integer_value(json_object_get(json_array_get(m->x->module_list, i), "parent"));
  }
  for (uint32_t i = 0; i < json_array_size(m->items); i++) {
    int32_t module = (int32_t)json_integer_value(json_object_get(item_at(m, i), "module"));
    vec_push(m->x->arena, &m->rooms[module].items, i);
    for (; module >= 0; module = m->parents[module]) {
      vec_push(m->x->arena, &m->rooms[module].all, i);
      if (m->parents[module] >= 0) add_child(m, (uint32_t)m->parents[module], (uint32_t)module);
    }
  }
}

/* "encoder" whose only content is "encoder.layer" is drawn as that. */
static uint32_t opened(const Mapper *m, uint32_t module) {
  while (!m->rooms[module].items.n && m->rooms[module].children.n == 1) module = m->rooms[module].children.items[0];
  return module;
}

// ---- one level ----

typedef struct Making {
  Mapper *m;
  uint32_t module;
  MapLevel *level;
  Map keys, lines;  /* of boxes, of lines */
  uint32_t *boxes;  /* by item: its box + 1; 0: it lies outside */
  bool has_many;    /* inputs of the model */
} Making;

static uint32_t box_of(Making *making, const char *key, const MapBox *box) {
  const uintptr_t known = (uintptr_t)map_get(&making->keys, key);
  if (known) return (uint32_t)known - 1;
  vec_push(making->m->x->arena, &making->level->boxes, *box);
  map_put(&making->keys, key, (void *)(uintptr_t)making->level->boxes.n);
  return (uint32_t)making->level->boxes.n - 1;
}

static void add_line(Making *making, uint32_t from, uint32_t to) {
  const char *key = arena_printf(making->m->x->arena, "%u %u", from, to);
  if (from == to || map_has(&making->lines, key)) return;
  map_put(&making->lines, key, making);
  vec_push(making->m->x->arena, &making->level->lines, (MapLine){from, to});
}

/* Equal siblings have one box, which opens the first of them. */
static void add_module(Making *making, uint32_t child) {
  Mapper *m = making->m;
  Arena *arena = m->x->arena;
  const uint32_t inside = opened(m, child);
  const size_t skipped = strlen(path_of(m, making->module));
  const char *name = path_of(m, inside) + skipped + (skipped > 0);
  const char *key = is_numbered(path_of(m, child)) ? arena_printf(arena, "level %d", (int)m->rooms[child].level)
                                                   : arena_printf(arena, "module %u", child);
  const MapBox box = {.label = name, .kind = "module", .item = -1, .module = (int32_t)inside};
  const uint32_t number = box_of(making, key, &box);
  MapBox *made = &making->level->boxes.items[number];
  if (made->times++)
    made->label = arena_printf(arena, "%.*s ... %s", (int)strcspn(made->label, " "), made->label, name);
  for (size_t i = 0; i < m->rooms[child].all.n; i++) making->boxes[m->rooms[child].all.items[i]] = number + 1;
}

/* What makes operations alike: what they do, and where they get it from. */
static const char *kind_of(const Mapper *m, uint32_t item) {
  StrBuf kind = strbuf_new(m->x->arena);
  const json_t *info = item_at(m, item), *inputs = json_object_get(info, "inputs");
  const json_t *reads = json_object_get(info, "reads");
  strbuf_add(&kind, json_string_value(json_object_get(info, "op")));
  for (size_t i = 0; i < json_array_size(inputs); i++)
    strbuf_printf(&kind, " %d", (int)json_integer_value(json_array_get(inputs, i)));
  for (size_t i = 0; i < json_array_size(reads); i++)
    strbuf_printf(&kind, " %s", json_string_value(json_array_get(reads, i)));
  return kind.text;
}

static void add_operations(Making *making) {
  const Mapper *m = making->m;
  const Room *room = &m->rooms[making->module];
  Map counts = map_new(m->x->arena);
  for (size_t i = 0; i < room->items.n; i++) {
    const char *kind = kind_of(m, room->items.items[i]);
    map_put(&counts, kind, (void *)((uintptr_t)map_get(&counts, kind) + 1));
  }
  for (size_t i = 0; i < room->items.n; i++) {
    const uint32_t item = room->items.items[i];
    const char *kind = kind_of(m, item);
    const bool is_one_of_many = (uintptr_t)map_get(&counts, kind) > MOST_ALIKE;
    const MapBox box = {.label = json_string_value(json_object_get(item_at(m, item), "op")),
                        .kind = "op", .item = (int32_t)item, .module = -1};
    const uint32_t number = box_of(making, is_one_of_many ? kind : arena_printf(m->x->arena, "op %u", item), &box);
    making->level->boxes.items[number].times++;
    making->boxes[item] = number + 1;
  }
}

/* A point on the edge: an input or output of the model by its name, or whatever comes from outside. Names that share
 * one are "y0 ... y999". */
static uint32_t port_of(Making *making, const char *kind, const char *name, const char *key) {
  Arena *arena = making->m->x->arena;
  const MapBox box = {.label = name, .kind = kind, .item = -1, .module = -1, .times = 1};
  const uint32_t number = box_of(making, key, &box);
  MapBox *port = &making->level->boxes.items[number];
  if (strcmp(port->label, name) != 0)
    port->label = arena_printf(arena, "%.*s ... %s", (int)strcspn(port->label, " "), port->label, name);
  return number;
}

/* Within modules "cache.3" is "cache.*", so that layers which read caches of their own are alike. */
static const char *name_of(const Making *making, const json_t *name) {
  const char *text = json_string_value(name), *dot = strrchr(text, '.');
  if (!making->module || !dot || !is_numbered(text)) return text;
  return arena_printf(making->m->x->arena, "%.*s.*", (int)(dot - text), text);
}

/* Many inputs are one point for each box that takes them first. */
static const char *key_of_input(const Making *making, const char *name, uint32_t to) {
  Arena *arena = making->m->x->arena;
  return making->has_many ? arena_printf(arena, "in of %u", to) : arena_printf(arena, "in %s", name);
}

static void add_incoming(Making *making, uint32_t item) {
  const json_t *info = item_at(making->m, item), *inputs = json_object_get(info, "inputs");
  const json_t *reads = json_object_get(info, "reads");
  const uint32_t to = making->boxes[item] - 1;
  for (size_t i = 0; i < json_array_size(inputs); i++) {
    const uint32_t from = making->boxes[json_integer_value(json_array_get(inputs, i))];
    add_line(making, from ? from - 1 : port_of(making, "in", "in", "in"), to);
  }
  for (size_t i = 0; i < json_array_size(reads); i++) {
    const char *name = name_of(making, json_array_get(reads, i));
    add_line(making, port_of(making, "in", name, key_of_input(making, name, to)), to);
  }
}

static bool has_many_inputs(const Making *making) {
  const Room *room = &making->m->rooms[making->module];
  Map names = map_new(making->m->x->arena);
  for (size_t i = 0; i < room->all.n; i++) {
    const json_t *reads = json_object_get(item_at(making->m, room->all.items[i]), "reads");
    for (size_t k = 0; k < json_array_size(reads); k++)
      map_put(&names, name_of(making, json_array_get(reads, k)), making->level);
  }
  return names.n > MOST_PORTS;
}

/* Outputs of one box are one point. */
static void add_outgoing(Making *making, uint32_t item) {
  const json_t *gives = json_object_get(item_at(making->m, item), "gives");
  const uint32_t from = making->boxes[item] - 1;
  for (size_t i = 0; i < json_array_size(gives); i++) {
    const char *name = name_of(making, json_array_get(gives, i));
    add_line(making, from, port_of(making, "out", name, arena_printf(making->m->x->arena, "out of %u", from)));
  }
}

/* A value that something outside uses leaves by one point. */
static void add_leaving(Making *making) {
  const Mapper *m = making->m;
  for (uint32_t i = 0; i < json_array_size(m->items); i++) {
    const json_t *inputs = json_object_get(item_at(m, i), "inputs");
    for (size_t k = 0; k < json_array_size(inputs) && !making->boxes[i]; k++) {
      const uint32_t from = making->boxes[json_integer_value(json_array_get(inputs, k))];
      if (from) add_line(making, from - 1, port_of(making, "out", "out", "out"));
    }
  }
}

/* What an operation has besides its name: the shape of its result; of a step the sizes of its product. */
static const char *details_of(const Making *making, int32_t item) {
  const json_t *info = item_at(making->m, (size_t)item), *shape = json_object_get(info, "shape");
  if (shape) return json_string_value(shape);
  StrBuf text = strbuf_new(making->m->x->arena);
  static const char *const sizes[] = {"n", "k", "h", "e"};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    strbuf_printf(&text, "%lld ", (long long)json_integer_value(json_object_get(info, sizes[i])));
  const json_t *kept_in = json_object_get(info, "form");
  if (kept_in) strbuf_add(&text, json_string_value(kept_in));
  return text.text;
}

static const char *text_of(const Making *making) {
  StrBuf text = strbuf_new(making->m->x->arena);
  for (size_t i = 0; i < making->level->boxes.n; i++) {
    const MapBox *box = &making->level->boxes.items[i];
    strbuf_printf(&text, "%s %s %u %d\n", box->kind, box->label, box->times,
                  box->module < 0 ? -1 : (int)making->m->rooms[box->module].level);
    if (box->item >= 0) strbuf_add(&text, details_of(making, box->item));
  }
  for (size_t i = 0; i < making->level->lines.n; i++)
    strbuf_printf(&text, "%u %u\n", making->level->lines.items[i].from, making->level->lines.items[i].to);
  return text.text;
}

static void make_level(Mapper *m, uint32_t module) {
  Room *room = &m->rooms[module];
  Arena *arena = m->x->arena;
  for (size_t i = 0; i < room->children.n; i++) make_level(m, room->children.items[i]);
  Making making = {.m = m, .module = module, .level = ARENA_NEW(arena, MapLevel), .keys = map_new(arena),
                   .lines = map_new(arena), .boxes = ARENA_ARRAY(arena, uint32_t, json_array_size(m->items) + 1)};
  making.has_many = has_many_inputs(&making);
  add_operations(&making);
  for (size_t i = 0; i < room->children.n; i++) add_module(&making, room->children.items[i]);
  for (size_t i = 0; i < room->all.n; i++) add_incoming(&making, room->all.items[i]);
  for (size_t i = 0; i < room->all.n; i++) add_outgoing(&making, room->all.items[i]);
  add_leaving(&making);
  const char *text = text_of(&making);
  const uintptr_t known = (uintptr_t)map_get(&m->known, text);
  room->level = known ? (int32_t)known - 1 : (int32_t)m->levels.all.n;
  if (!known) {
    vec_push(arena, &m->levels.all, making.level);
    map_put(&m->known, text, (void *)(uintptr_t)m->levels.all.n);
  }
  vec_push(arena, &m->levels.all.items[room->level]->modules, module);
}

MapLevels map_levels(Explorer *x, const json_t *items) {
  Mapper m = {.x = x, .items = items, .known = map_new(x->arena)};
  fill_rooms(&m);
  make_level(&m, 0);
  return m.levels;
}

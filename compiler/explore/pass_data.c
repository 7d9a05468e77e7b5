/* Passes: what was fused, what was not and why, and what each pass changed.
 *
 * In: the logs and tracks of the programs. Out: the lists `fusions` and `passes`. The same change in modules that
 * differ in numbers only is one entry. Refuses nothing. */
#include <string.h>

#include "explore/explorer.h"

// ---- fusions ----

static void add_fusions(Explorer *x, uint32_t number, json_t *list) {
  const PassLog *log = &x->programs.items[number].log;
  Map known = map_new(x->arena);
  for (size_t i = 0; i < log->records.n; i++) {
    const FusionRecord *record = &log->records.items[i];
    const SrcSpan span = origin_place(&record->origin);
    json_t *place = explorer_place(x, span);
    const char *path = path_without_numbers(x->arena, record->origin.path);
    const char *key = arena_printf(x->arena, "%d %d %p %u %s\n%s", (int)record->fusion, record->done,
                                   (void *)span.source, span.begin, path, record->reason);
    json_t *made = map_get(&known, key);
    if (made) {
      json_object_set_new(made, "times", json_integer(json_integer_value(json_object_get(made, "times")) + 1));
      json_array_append_new(json_object_get(made, "modules"), json_integer(explorer_module(x, record->origin.path)));
      json_decref(place);
      continue;
    }
    made = json_pack("{s:i, s:s, s:s, s:b, s:o, s:O?, s:O?, s:i, s:[i], s:i}", "program", (int)number, "fusion",
                     fusion_table[record->fusion].name, "pass", fusion_table[record->fusion].pass, "done",
                     (int)record->done, "reason",
                     explorer_text(x, record->reason), "file", json_array_get(place, 0), "line",
                     json_array_get(place, 1), "module", explorer_module(x, record->origin.path), "modules",
                     explorer_module(x, record->origin.path), "times", 1);
    json_object_set_new(made, "lines", explorer_lines(x, &record->origin));
    map_put(&known, key, made);
    json_array_append_new(list, made);
    json_decref(place);
  }
}

json_t *explorer_fusions(Explorer *x) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < x->programs.n; i++) add_fusions(x, i, list);
  return list;
}

// ---- what passes changed ----

typedef struct Change { /* of one module */
  const char *path;
  VEC(const TrackedNode *) gone, came;
} Change;

typedef struct Numbering { /* how the lists of a program name its operations */
  const Tracks *tracks;
  const int32_t *written, *fused; /* by id */
} Numbering;

static Change *change_of(Explorer *x, Map *changes, const char *path) {
  Change *change = map_get(changes, path);
  if (change) return change;
  change = ARENA_NEW(x->arena, Change);
  change->path = path;
  map_put(changes, path, change);
  return change;
}

static json_t *texts(Explorer *x, const TrackedNode *const *nodes, size_t n) {
  json_t *list = json_array();
  for (size_t i = 0; i < n; i++) json_array_append_new(list, explorer_text(x, nodes[i]->text));
  return list;
}

static const char *key_of(Explorer *x, const Change *change) {
  StrBuf key = strbuf_new(x->arena);
  strbuf_add(&key, path_without_numbers(x->arena, change->path));
  for (size_t i = 0; i < change->gone.n; i++) strbuf_printf(&key, "\n- %s", change->gone.items[i]->text);
  for (size_t i = 0; i < change->came.n; i++) strbuf_printf(&key, "\n+ %s", change->came.items[i]->text);
  return key.text;
}

static json_t *lines_of(Explorer *x, const Change *change) {
  json_t *lines = json_array();
  for (size_t i = 0; i < change->gone.n; i++) explorer_add_lines(x, lines, &change->gone.items[i]->origin);
  for (size_t i = 0; i < change->came.n; i++) explorer_add_lines(x, lines, &change->came.items[i]->origin);
  return lines;
}

/* Where it is seen on a map: operations as written that nodes which went stood for, and nodes which came and are there
 * when all passes have run. */
static void add_operations(const Numbering *numbering, const Change *change, json_t *group) {
  json_t *went = json_object_get(group, "went"), *came = json_object_get(group, "came");
  for (size_t i = 0; i < change->gone.n; i++) {
    const TrackIds *ids = tracks_of(numbering->tracks, change->gone.items[i]->node);
    for (size_t k = 0; ids && k < ids->items.n; k++) {
      const int32_t written = numbering->written[ids->items.items[k]];
      if (written >= 0) json_array_append_new(went, json_integer(written));
    }
  }
  for (size_t i = 0; i < change->came.n; i++) {
    const Node *node = change->came.items[i]->node;
    if (!node->deleted && numbering->fused[node->id] >= 0)
      json_array_append_new(came, json_integer(numbering->fused[node->id]));
  }
}

static json_t *group_of(Explorer *x, const Change *change) {
  return json_pack("{s:o, s:i, s:[i], s:o, s:o, s:o, s:[], s:[]}", "module",
                   explorer_text(x, path_without_numbers(x->arena, change->path)), "times", 1, "modules",
                   explorer_module(x, change->path), "before", texts(x, change->gone.items, change->gone.n), "after",
                   texts(x, change->came.items, change->came.n), "lines", lines_of(x, change), "went", "came");
}

static json_t *groups_of(Explorer *x, const TrackedPass *pass, const Numbering *numbering) {
  Map changes = map_new(x->arena), groups = map_new(x->arena);
  json_t *list = json_array();
  for (size_t i = 0; i < pass->gone.n; i++)
    vec_push(x->arena, &change_of(x, &changes, pass->gone.items[i].path)->gone, &pass->gone.items[i]);
  for (size_t i = 0; i < pass->came.n; i++)
    vec_push(x->arena, &change_of(x, &changes, pass->came.items[i].path)->came, &pass->came.items[i]);
  for (size_t i = 0; i < changes.n; i++) {
    const Change *change = changes.items[i].value;
    const char *key = key_of(x, change);
    json_t *group = map_get(&groups, key);
    if (group) {
      json_object_set_new(group, "times", json_integer(json_integer_value(json_object_get(group, "times")) + 1));
      json_array_append_new(json_object_get(group, "modules"), json_integer(explorer_module(x, change->path)));
    } else {
      group = group_of(x, change);
      map_put(&groups, key, group);
      json_array_append_new(list, group);
    }
    add_operations(numbering, change, group);
  }
  return list;
}

json_t *explorer_passes(Explorer *x) {
  json_t *list = json_array();
  for (uint32_t p = 0; p < x->programs.n; p++) {
    const ExploredProgram *program = &x->programs.items[p];
    const Tracks *tracks = program->tracks;
    const Numbering numbering = {tracks, explorer_operation_numbers(x, program->written),
                                 explorer_operation_numbers(x, program->graph)};
    for (size_t i = 0; i < tracks->passes.n; i++) {
      const TrackedPass *pass = &tracks->passes.items[i];
      json_array_append_new(list, json_pack("{s:s, s:i, s:b, s:i, s:o}", "name", pass->name, "program", (int)p,
                                            "changed", (int)pass->changed, "delta",
                                            (int)pass->came.n - (int)pass->gone.n, "groups",
                                            groups_of(x, pass, &numbering)));
    }
  }
  return list;
}

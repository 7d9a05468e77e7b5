/* Compare: what another model, or the same with other options, has in place of what this one has.
 *
 * In: the data of both, as explore_data made them. Out: the member `compare`: groups of changes, and what the totals
 * of the other model are made of. Modules are matched by name; those with numbers, such as layers, by what is in them,
 * then in order. Within a module operations are matched in order. Equal changes of modules that differ in numbers are
 * one group. Two that are the same as they were written are compared by their steps. Refuses nothing. */
#include <string.h>

#include "explore/compare_side.h"

enum { MOST_CELLS = 1 << 24 }; /* of a table; longer lists that differ are taken to differ as a whole */

typedef struct Comparison {
  Arena *arena;
  Side this, other;
  Map groups;
  json_t *list;
  bool of_steps;
  bool is_measured; /* the steps of both were */
} Comparison;

// ---- the longest common subsequence ----

/* For each text of `a` the number of its partner in `b`, or -1. */
static int32_t *partners(Arena *arena, const Texts *a, const Texts *b) {
  int32_t *found = ARENA_ARRAY(arena, int32_t, a->n + 1);
  size_t first = 0, x = a->n, y = b->n;
  for (size_t i = 0; i < a->n; i++) found[i] = -1;
  for (; first < x && first < y && strcmp(a->items[first], b->items[first]) == 0; first++) found[first] = (int)first;
  for (; x > first && y > first && strcmp(a->items[x - 1], b->items[y - 1]) == 0; x--, y--)
    found[x - 1] = (int)y - 1;
  const size_t rows = x - first, columns = y - first;
  if (!rows || !columns || (rows + 1) * (columns + 1) > MOST_CELLS) return found;
  uint32_t *longest = ARENA_ARRAY(arena, uint32_t, (rows + 1) * (columns + 1)); /* from here to the ends */
  for (size_t i = rows; i-- > 0;)
    for (size_t k = columns; k-- > 0;) {
      uint32_t *cell = &longest[i * (columns + 1) + k];
      const uint32_t down = cell[columns + 1], right = cell[1];
      if (strcmp(a->items[first + i], b->items[first + k]) == 0) *cell = cell[columns + 2] + 1;
      else *cell = down > right ? down : right;
    }
  for (size_t i = 0, k = 0; i < rows && k < columns;) {
    const uint32_t *cell = &longest[i * (columns + 1) + k];
    if (strcmp(a->items[first + i], b->items[first + k]) == 0) found[first + i++] = (int)(first + k++);
    else if (cell[columns + 1] >= cell[1]) i++;
    else k++;
  }
  return found;
}

// ---- groups ----

static json_t *texts_json(const Texts *texts) {
  json_t *list = json_array();
  for (size_t i = 0; i < texts->n; i++) json_array_append_new(list, json_string(texts->items[i]));
  return list;
}

typedef struct Difference {
  const char *path;
  uint32_t module; /* of this model: the nearest that it has */
  Texts before, after;
  Numbers ops; /* of this model: those that `before` is about */
  double bytes_before, bytes_after;
  double nanoseconds_before, nanoseconds_after;
} Difference;

static void add_number(json_t *list, size_t at, double more) {
  json_array_set_new(list, at, json_real(json_number_value(json_array_get(list, at)) + more));
}

static void add_difference(Comparison *c, const Difference *d) {
  if (!d->before.n && !d->after.n) return;
  const char *path = path_without_numbers(c->arena, d->path);
  StrBuf key = strbuf_new(c->arena);
  strbuf_printf(&key, "%s", path);
  for (size_t i = 0; i < d->before.n; i++) strbuf_printf(&key, "\n- %s", d->before.items[i]);
  for (size_t i = 0; i < d->after.n; i++) strbuf_printf(&key, "\n+ %s", d->after.items[i]);
  json_t *group = map_get(&c->groups, key.text);
  if (!group) {
    const char *kind = !d->before.n ? "added" : !d->after.n ? "removed" : "changed";
    group = json_pack("{s:s, s:s, s:i, s:[], s:o, s:o, s:[f,f]}", "kind", kind, "module", path, "times", 0, "modules",
                      "before", texts_json(&d->before), "after", texts_json(&d->after), "weight_bytes", 0.0, 0.0);
    json_object_set_new(group, "ops", json_array());
    map_put(&c->groups, key.text, group);
    json_array_append_new(c->list, group);
  }
  json_object_set_new(group, "times", json_integer(json_integer_value(json_object_get(group, "times")) + 1));
  json_array_append_new(json_object_get(group, "modules"), json_integer((json_int_t)d->module));
  for (size_t i = 0; i < d->ops.n; i++)
    if (d->ops.items[i] != NO_OPERATION)
      json_array_append_new(json_object_get(group, "ops"), json_integer(d->ops.items[i]));
  add_number(json_object_get(group, "weight_bytes"), 0, d->bytes_before);
  add_number(json_object_get(group, "weight_bytes"), 1, d->bytes_after);
  if (!c->is_measured) return;
  json_t *times = json_object_get(group, "nanoseconds");
  if (!times) json_object_set_new(group, "nanoseconds", times = json_pack("[f,f]", 0.0, 0.0));
  add_number(times, 0, d->nanoseconds_before);
  add_number(times, 1, d->nanoseconds_after);
}

/* All of a module and of those in it, equal operations once. */
static void collect(const Comparison *c, const Side *side, uint32_t module, Map *counts, Difference *d) {
  const Entries *own = &side->items[module];
  const bool is_ours = side == &c->this;
  for (size_t i = 0; i < own->texts.n; i++) {
    const char *text = own->texts.items[i];
    map_put(counts, text, (void *)((uintptr_t)map_get(counts, text) + 1));
    if (is_ours) vec_push(c->arena, &d->ops, own->numbers.items[i]);
  }
  *(is_ours ? &d->bytes_before : &d->bytes_after) += side->weight_bytes[module];
  *(is_ours ? &d->nanoseconds_before : &d->nanoseconds_after) += side->nanoseconds[module];
  for (size_t i = 0; i < side->children[module].n; i++)
    collect(c, side, side->children[module].items[i], counts, d);
}

/* A module that only one side has. `near`: the module of this model that it is or would be in. */
static void add_alone(Comparison *c, const Side *side, uint32_t module, uint32_t near) {
  const bool is_ours = side == &c->this;
  Difference d = {.path = member_text(json_array_get(side->modules, module), "path"),
                  .module = is_ours ? module : near};
  Map counts = map_new(c->arena);
  Texts texts = {0};
  collect(c, side, module, &counts, &d);
  if (!counts.n) vec_push(c->arena, &texts, "a module without operations");
  for (size_t i = 0; i < counts.n; i++) {
    const unsigned long n = (unsigned long)(uintptr_t)counts.items[i].value;
    vec_push(c->arena, &texts,
             n > 1 ? arena_printf(c->arena, "%s (× %lu)", counts.items[i].key, n) : counts.items[i].key);
  }
  *(is_ours ? &d.before : &d.after) = texts;
  add_difference(c, &d);
}

// ---- modules ----

static const char *last_name(const Side *side, uint32_t module) {
  const char *path = member_text(json_array_get(side->modules, module), "path"), *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

static bool is_number(const char *name) { return *name && !name[strspn(name, "0123456789")]; }

static void compare_modules(Comparison *c, uint32_t mine, uint32_t theirs);

/* Numbered children: those with the same inside are partners; between them, in order. */
static void compare_numbered(Comparison *c, const Numbers *mine, const Numbers *theirs, uint32_t parent) {
  Texts a = {0}, b = {0};
  for (size_t i = 0; i < mine->n; i++) vec_push(c->arena, &a, c->this.signatures[mine->items[i]]);
  for (size_t i = 0; i < theirs->n; i++) vec_push(c->arena, &b, c->other.signatures[theirs->items[i]]);
  const int32_t *found = partners(c->arena, &a, &b);
  size_t i = 0, k = 0;
  while (i < mine->n || k < theirs->n) {
    size_t end = i;
    while (end < mine->n && found[end] < 0) end++;
    const size_t their_end = end < mine->n ? (size_t)found[end] : theirs->n;
    while (i < end && k < their_end) compare_modules(c, mine->items[i++], theirs->items[k++]);
    while (i < end) add_alone(c, &c->this, mine->items[i++], parent);
    while (k < their_end) add_alone(c, &c->other, theirs->items[k++], parent);
    if (end < mine->n) compare_modules(c, mine->items[i++], theirs->items[k++]);
  }
}

/* The place in `theirs` of a child that is not taken yet: of this name, or with the same inside; their number if there
 * is none. */
static size_t find_named(const Comparison *c, const Numbers *theirs, const bool *taken, uint32_t child) {
  const char *name = last_name(&c->this, child);
  size_t k = 0;
  while (k < theirs->n && (taken[k] || strcmp(last_name(&c->other, theirs->items[k]), name) != 0)) k++;
  return k;
}

static size_t find_equal(const Comparison *c, const Numbers *theirs, const bool *taken, uint32_t child) {
  const char *inside = c->this.signatures[child];
  size_t k = 0;
  while (k < theirs->n && (taken[k] || strcmp(c->other.signatures[theirs->items[k]], inside) != 0)) k++;
  return k;
}

static void add_renamed(Comparison *c, uint32_t mine, uint32_t theirs) {
  Difference d = {.path = member_text(json_array_get(c->this.modules, mine), "path"), .module = mine};
  vec_push(c->arena, &d.before, arena_printf(c->arena, "module %s", last_name(&c->this, mine)));
  vec_push(c->arena, &d.after, arena_printf(c->arena, "module %s", last_name(&c->other, theirs)));
  add_difference(c, &d);
}

/* Children with names: the same name, or else the same inside under another name. */
static void compare_named(Comparison *c, const Numbers *mine, const Numbers *theirs, uint32_t parent) {
  bool *taken = ARENA_ARRAY(c->arena, bool, theirs->n + 1);
  Numbers left = {0};
  for (size_t i = 0; i < mine->n; i++) {
    const size_t k = find_named(c, theirs, taken, mine->items[i]);
    if (k == theirs->n) {
      vec_push(c->arena, &left, mine->items[i]);
      continue;
    }
    taken[k] = true;
    compare_modules(c, mine->items[i], theirs->items[k]);
  }
  for (size_t i = 0; i < left.n; i++) {
    const size_t k = find_equal(c, theirs, taken, left.items[i]);
    if (k == theirs->n) {
      add_alone(c, &c->this, left.items[i], parent);
      continue;
    }
    taken[k] = true;
    add_renamed(c, left.items[i], theirs->items[k]);
  }
  for (size_t k = 0; k < theirs->n; k++)
    if (!taken[k]) add_alone(c, &c->other, theirs->items[k], parent);
}

static void compare_texts(Comparison *c, uint32_t mine, uint32_t theirs) {
  const Entries *ours = c->of_steps ? &c->this.steps[mine] : &c->this.items[mine];
  const Texts *a = &ours->texts;
  const Texts *b = c->of_steps ? &c->other.steps[theirs].texts : &c->other.items[theirs].texts;
  Difference d = {.path = member_text(json_array_get(c->this.modules, mine), "path"), .module = mine,
                  .bytes_before = c->this.weight_bytes[mine], .bytes_after = c->other.weight_bytes[theirs],
                  .nanoseconds_before = c->this.nanoseconds[mine], .nanoseconds_after = c->other.nanoseconds[theirs]};
  const int32_t *found = partners(c->arena, a, b);
  bool *is_partner = ARENA_ARRAY(c->arena, bool, b->n + 1);
  for (size_t i = 0; i < a->n; i++) {
    if (found[i] >= 0) {
      is_partner[found[i]] = true;
      continue;
    }
    vec_push(c->arena, &d.before, a->items[i]);
    vec_push(c->arena, &d.ops, ours->numbers.items[i]);
  }
  for (size_t k = 0; k < b->n; k++)
    if (!is_partner[k]) vec_push(c->arena, &d.after, b->items[k]);
  add_difference(c, &d);
}

static void compare_modules(Comparison *c, uint32_t mine, uint32_t theirs) {
  Numbers ours[2] = {0}, others[2] = {0};
  compare_texts(c, mine, theirs);
  for (size_t i = 0; i < c->this.children[mine].n; i++) {
    const uint32_t child = c->this.children[mine].items[i];
    vec_push(c->arena, &ours[is_number(last_name(&c->this, child))], child);
  }
  for (size_t i = 0; i < c->other.children[theirs].n; i++) {
    const uint32_t child = c->other.children[theirs].items[i];
    vec_push(c->arena, &others[is_number(last_name(&c->other, child))], child);
  }
  compare_named(c, &ours[0], &others[0], mine);
  compare_numbered(c, &ours[1], &others[1], mine);
}

// ---- what the totals of the other are made of ----

/* Its formulas stand behind those of this model. */
static void take_formula(json_t *to, const json_t *from, const char *name, json_int_t base) {
  const json_t *number = json_object_get(from, name);
  if (number) json_object_set_new(to, name, json_integer(json_integer_value(number) + base));
}

static json_t *slim_step(const json_t *step, json_int_t base) {
  json_t *slim = json_object();
  const json_t *causal = json_object_get(step, "causal");
  take_formula(slim, step, "flop", base);
  take_formula(slim, step, "cache_bytes", base);
  json_object_set(slim, "whole", json_object_get(step, "whole"));
  json_object_set(slim, "weight_bytes", json_object_get(step, "weight_bytes"));
  if (!causal) return slim;
  json_t *own = json_object();
  take_formula(own, causal, "queries", base);
  take_formula(own, causal, "keys", base);
  take_formula(own, causal, "flop", base);
  json_object_set_new(slim, "causal", own);
  return slim;
}

static json_t *slim_tensors(const json_t *tensors, json_int_t base) {
  json_t *list = json_array();
  for (size_t i = 0; i < json_array_size(tensors); i++) {
    json_t *slim = json_object();
    take_formula(slim, json_array_get(tensors, i), "bytes", base);
    json_array_append_new(list, slim);
  }
  return list;
}

static json_t *slim_program(const json_t *program, json_int_t base) {
  static const char *const kept[] = {"name", "sizes", "caches", "workspace"};
  json_t *slim = json_object(), *steps = json_array();
  const json_t *all = json_object_get(program, "steps");
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
    json_object_set(slim, kept[i], json_object_get(program, kept[i]));
  take_formula(slim, program, "flop", base);
  json_object_set_new(slim, "inputs", slim_tensors(json_object_get(program, "inputs"), base));
  json_object_set_new(slim, "outputs", slim_tensors(json_object_get(program, "outputs"), base));
  for (size_t i = 0; i < json_array_size(all); i++)
    json_array_append_new(steps, slim_step(json_array_get(all, i), base));
  json_object_set_new(slim, "steps", steps);
  return slim;
}

// ---- kernels ----

/* What tells two kernels apart: their names are hashes of it. */
static const char *kernel_key(Arena *arena, const json_t *kernel) {
  return arena_printf(arena, "%s: %s", member_text(kernel, "family"), member_text(kernel, "spec"));
}

/* Kernels that one of the two has alone: of this model their numbers, of the other what they are. */
static json_t *compare_kernels(Arena *arena, const json_t *data, const json_t *other) {
  const json_t *ours = json_object_get(data, "kernels"), *theirs = json_object_get(other, "kernels");
  json_t *here = json_array(), *there = json_array();
  Map mine = map_new(arena), known = map_new(arena);
  for (size_t i = 0; i < json_array_size(ours); i++) map_put(&mine, kernel_key(arena, json_array_get(ours, i)), &mine);
  for (size_t i = 0; i < json_array_size(theirs); i++) {
    const char *key = kernel_key(arena, json_array_get(theirs, i));
    map_put(&known, key, &known);
    if (!map_has(&mine, key)) json_array_append_new(there, json_string(key));
  }
  for (size_t i = 0; i < json_array_size(ours); i++)
    if (!map_has(&known, kernel_key(arena, json_array_get(ours, i))))
      json_array_append_new(here, json_integer((json_int_t)i));
  const size_t both = json_array_size(ours) - json_array_size(here);
  return json_pack("{s:i, s:o, s:o}", "both", (int)both, "here", here, "there", there);
}

// ---- the whole ----

static Comparison compare_program(Arena *arena, const json_t *data, const json_t *other, const char *program) {
  Comparison c = {.arena = arena, .this = compare_side(arena, data, program),
                  .other = compare_side(arena, other, program), .groups = map_new(arena), .list = json_array(),
                  .is_measured = strcmp(program, "whole") == 0 && json_object_get(other, "runs")};
  compare_modules(&c, 0, 0);
  return c;
}

void explore_compare(Arena *arena, json_t *data, const json_t *other) {
  Comparison c = compare_program(arena, data, other, "whole");
  if (!json_array_size(c.list)) {
    c.of_steps = true;
    compare_modules(&c, 0, 0);
  }
  const bool has_gradients = program_named(data, "gradients") && program_named(other, "gradients");
  json_t *gradients = has_gradients ? compare_program(arena, data, other, "gradients").list : json_array();
  json_t *formulas = json_object_get(data, "formulas"), *programs = json_array();
  const json_int_t base = (json_int_t)json_array_size(formulas);
  const json_t *all = json_object_get(other, "programs");
  json_array_extend(formulas, json_object_get(other, "formulas"));
  for (size_t i = 0; i < json_array_size(all); i++)
    json_array_append_new(programs, slim_program(json_array_get(all, i), base));
  json_object_set_new(data, "compare",
                      json_pack("{s:O, s:O, s:b, s:o, s:o, s:o, s:o}", "model", json_object_get(other, "model"),
                                "command", json_object_get(other, "command"), "of_steps", (int)c.of_steps, "groups",
                                c.list, "gradients", gradients, "kernels", compare_kernels(arena, data, other),
                                "programs", programs));
  json_t *runs = json_object_get(other, "runs");
  if (runs) json_object_set(json_object_get(data, "compare"), "runs", runs);
}

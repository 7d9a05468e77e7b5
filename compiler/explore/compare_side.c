/* In: the data of a model. Out: what each module has, as texts that two models can have in common. See
 * compare_side.h. */
#include "explore/compare_side.h"

#include <string.h>

const char *member_text(const json_t *object, const char *name) {
  return json_string_value(json_object_get(object, name));
}

static uint32_t module_of(const json_t *object) {
  return (uint32_t)json_integer_value(json_object_get(object, "module"));
}

static void add(Arena *arena, Entries *entries, uint32_t number, const char *text) {
  vec_push(arena, &entries->texts, text);
  vec_push(arena, &entries->numbers, number);
}

static void add_tensors(Arena *arena, Side *side, const json_t *tensors, const char *kind) {
  for (size_t i = 0; i < json_array_size(tensors); i++) {
    const json_t *tensor = json_array_get(tensors, i);
    add(arena, &side->items[0], NO_OPERATION,
        arena_printf(arena, "%s %s : %s", kind, member_text(tensor, "name"), member_text(tensor, "shape")));
  }
}

/* Weights with the usual names lose the path of their module, which may have another name on the other side. */
static void add_weights(Arena *arena, Side *side, uint32_t module) {
  const json_t *own = json_array_get(side->modules, module), *weights = json_object_get(own, "weights");
  const char *path = member_text(own, "path");
  const size_t length = strlen(path);
  for (size_t i = 0; i < json_array_size(weights); i++) {
    const json_t *weight = json_array_get(weights, i);
    const char *name = member_text(weight, "name");
    if (length && strncmp(name, path, length) == 0 && name[length] == '.') name += length + 1;
    add(arena, &side->items[module], NO_OPERATION,
        arena_printf(arena, "weight %s : %s", path_without_numbers(arena, name), member_text(weight, "shape")));
  }
}

static void add_operations(Arena *arena, Side *side, const json_t *operations) {
  for (size_t i = 0; i < json_array_size(operations); i++) {
    const json_t *op = json_array_get(operations, i);
    const char *expr = member_text(op, "expr");
    add(arena, &side->items[module_of(op)], (uint32_t)i,
        arena_printf(arena, "%s%s%s : %s", member_text(op, "op"), *expr ? " " : "", expr, member_text(op, "shape")));
  }
}

static void add_steps(Arena *arena, Side *side, const json_t *steps) {
  for (size_t i = 0; i < json_array_size(steps); i++) {
    const json_t *step = json_array_get(steps, i), *n = json_object_get(step, "n");
    StrBuf text = strbuf_new(arena);
    strbuf_add(&text, member_text(step, "op"));
    if (n)
      strbuf_printf(&text, " %lld to %lld", (long long)json_integer_value(json_object_get(step, "k")),
                    (long long)json_integer_value(n));
    if (json_object_get(step, "form")) strbuf_printf(&text, " in %s", member_text(step, "form"));
    add(arena, &side->steps[module_of(step)], (uint32_t)i, text.text);
    side->weight_bytes[module_of(step)] += json_number_value(json_object_get(step, "weight_bytes"));
    side->nanoseconds[module_of(step)] += json_number_value(json_object_get(step, "measured"));
  }
}

/* All that is in a module, whatever numbers stand in names. Children come behind their parents in the list. */
static void note_signatures(Arena *arena, Side *side) {
  for (size_t m = json_array_size(side->modules); m-- > 0;) {
    StrBuf text = strbuf_new(arena);
    const Texts *own = &side->items[m].texts;
    for (size_t i = 0; i < own->n; i++) strbuf_printf(&text, "%s\n", own->items[i]);
    for (size_t i = 0; i < side->children[m].n; i++) {
      const uint32_t child = side->children[m].items[i];
      const char *path = member_text(json_array_get(side->modules, child), "path"), *dot = strrchr(path, '.');
      strbuf_printf(&text, "%s{%s}\n", path_without_numbers(arena, dot ? dot + 1 : path), side->signatures[child]);
    }
    side->signatures[m] = text.text;
  }
}

const json_t *program_named(const json_t *data, const char *name) {
  const json_t *programs = json_object_get(data, "programs");
  for (size_t i = 0; i < json_array_size(programs); i++)
    if (strcmp(member_text(json_array_get(programs, i), "name"), name) == 0) return json_array_get(programs, i);
  return NULL;
}

Side compare_side(Arena *arena, const json_t *data, const char *program) {
  Side side = {.modules = json_object_get(data, "modules")};
  const size_t n = json_array_size(side.modules);
  const json_t *own = program_named(data, program);
  side.children = arena_array(arena, n, sizeof *side.children);
  side.items = arena_array(arena, n, sizeof *side.items);
  side.steps = arena_array(arena, n, sizeof *side.steps);
  side.weight_bytes = ARENA_ARRAY(arena, double, n);
  side.nanoseconds = ARENA_ARRAY(arena, double, n);
  side.signatures = ARENA_ARRAY(arena, const char *, n);
  add_tensors(arena, &side, json_object_get(own, "inputs"), "input");
  for (uint32_t m = 0; m < n; m++) {
    const json_int_t parent = json_integer_value(json_object_get(json_array_get(side.modules, m), "parent"));
    if (parent >= 0) vec_push(arena, &side.children[parent], m);
    if (strcmp(program, "whole") == 0) add_weights(arena, &side, m);
  }
  add_operations(arena, &side, json_object_get(own, "primitives"));
  add_tensors(arena, &side, json_object_get(own, "outputs"), "output");
  add_steps(arena, &side, json_object_get(own, "steps"));
  note_signatures(arena, &side);
  return side;
}

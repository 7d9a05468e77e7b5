/* Values and the names they are bound to.
 *
 * In: two values, a value and a name. Out: whether they are equal, what a comparison of run-time sizes decides to, the
 * binding of a name. A scope is searched from its end while it is short, by a hash of the interned pointers when it is
 * long. Nothing is reported here; a size that is too large gives POISON. */
#include "elaborate/values.h"

#include <string.h>

#include "diag/diag.h"

// ---- values ----

const char *value_kind_text(ValueKind kind) {
  static const char *const texts[] = {
#define VALUE(Enum, text) text,
      VALUE_KINDS(VALUE)
#undef VALUE
  };
  return texts[kind];
}

Value value_size(const Size *size) {
  int64_t value;
  if (!size) return POISON;
  return size_is_const(size, &value) ? value_integer(value) : (Value){VALUE_SIZE, {.size = size}};
}

const Size *size_of(SizeTable *sizes, Value v) {
  return v.kind == VALUE_INTEGER ? size_const(sizes, v.as.integer) : v.as.size;
}

double number_of(Value v) { return v.kind == VALUE_INTEGER ? (double)v.as.integer : v.as.number; }

/* Whether `difference op 0`. */
static bool holds(OpKind op, int64_t difference) {
  switch (op) {
    case OP_EQ: return difference == 0;
    case OP_NE: return difference != 0;
    case OP_LT: return difference < 0;
    case OP_GT: return difference > 0;
    case OP_LE: return difference <= 0;
    default: return difference >= 0;
  }
}

/* The sign of left - right; both sides cancel where they share terms, so `n + 1 > n` is decided here. */
Value value_compare(Arena *arena, SizeTable *sizes, OpKind op, const Size *left, const Size *right) {
  int64_t value;
  const Size *difference = size_sub(sizes, left, right);
  if (!difference) return POISON;
  if (size_is_const(difference, &value)) return value_bool(holds(op, value));
  Cond *condition = ARENA_NEW(arena, Cond);
  *condition = (Cond){.kind = COND_COMPARE, .op = op, .left = left, .right = right};
  return (Value){VALUE_CONDITION, {.condition = condition}};
}

Value value_condition(Arena *arena, CondKind kind, const Cond *a, const Cond *b) {
  Cond *condition = ARENA_NEW(arena, Cond);
  *condition = (Cond){.kind = kind, .a = a, .b = b};
  return (Value){VALUE_CONDITION, {.condition = condition}};
}

/* Integers are compared exactly, mixtures as doubles. */
static bool same_number(Value a, Value b) {
  if (a.kind == VALUE_INTEGER && b.kind == VALUE_INTEGER) return a.as.integer == b.as.integer;
  return number_of(a) == number_of(b);
}

static bool same_templates(const Template *a, const Template *b, uint32_t *budget);
static bool same_lists(const List *a, const List *b, uint32_t *budget);

/* `*budget` bounds the work: templates can share parts so that a comparison would take exponential time. */
static bool same_values(Value a, Value b, uint32_t *budget) {
  if (!*budget) return false;
  (*budget)--;
  if (is_number(a) && is_number(b)) return same_number(a, b);
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case VALUE_NONE: return true;
    case VALUE_BOOL: return a.as.boolean == b.as.boolean;
    case VALUE_SIZE: return a.as.size == b.as.size; /* unique in their table */
    case VALUE_STRING: return strcmp(a.as.string, b.as.string) == 0;
    case VALUE_LIST: return same_lists(a.as.list, b.as.list, budget);
    case VALUE_PRIMITIVE: return a.as.primitive == b.as.primitive;
    case VALUE_FUNCTION: return a.as.function == b.as.function;
    case VALUE_LAYER: return a.as.layer == b.as.layer;
    case VALUE_TEMPLATE: return same_templates(a.as.template, b.as.template, budget);
    case VALUE_MODULE: return a.as.module == b.as.module;
    case VALUE_TENSOR: return a.as.tensor == b.as.tensor;
    case VALUE_TUPLE: return a.as.tuple == b.as.tuple;
    default: return false;
  }
}

/* The path after `as` belongs to an element. */
static bool same_lists(const List *a, const List *b, uint32_t *budget) {
  if (a == b) return true;
  if (a->n != b->n) return false;
  for (uint32_t i = 0; i < a->n; i++) {
    const char *path = a->paths ? a->paths[i] : NULL, *other = b->paths ? b->paths[i] : NULL;
    if (path != other && (!path || !other || strcmp(path, other) != 0)) return false;
    if (!same_values(a->items[i], b->items[i], budget)) return false;
  }
  return true;
}

/* Follows repetitions in a loop; config values recurse, which MAX_TEMPLATE_DEPTH bounds. */
static bool same_templates(const Template *a, const Template *b, uint32_t *budget) {
  for (; a != b; a = a->inner, b = b->inner) {
    if (!a || !b || a->layer != b->layer || a->count != b->count) return false;
    if (!a->layer) continue;
    if (a->config->bindings.n != b->config->bindings.n) return false;
    for (size_t i = 0; i < a->config->bindings.n; i++) {
      if (!same_values(a->config->bindings.items[i].value, b->config->bindings.items[i].value, budget)) return false;
    }
    return true;
  }
  return true;
}

/* Values that one comparison looks at; beyond them the two count as different, which at worst refuses a model. */
enum { MAX_COMPARED = 10000 };

bool values_equal(Value a, Value b) {
  uint32_t budget = MAX_COMPARED;
  return same_values(a, b, &budget);
}

bool templates_equal(const Template *a, const Template *b) {
  uint32_t budget = MAX_COMPARED;
  return same_templates(a, b, &budget);
}

// ---- scopes ----

/* Up to here, a search of pointers is faster than a hash; most scopes have fewer names. */
enum { SHORT_SCOPE = 8 };

/* A scope without a module of its own belongs to that of its parent. */
Scope *scope_new(Arena *arena, Scope *parent, Module *module) {
  Scope *scope = ARENA_NEW(arena, Scope);
  scope->parent = parent;
  scope->module = module ? module : parent ? parent->module : NULL;
  return scope;
}

/* Only for a scope that is still empty. */
void scope_reserve(Arena *arena, Scope *scope, uint32_t n) {
  if (scope->bindings.cap) return;
  scope->bindings.items = ARENA_ARRAY(arena, Binding, n);
  scope->bindings.cap = n;
}

/* The slot of a name, or the empty one where it belongs; half of the slots are empty. The multiplier is 2^64 over the
 * golden ratio (Fibonacci hashing), which spreads the low bits of pointers to the high ones that are used. */
static uint32_t *slot_of(const Scope *scope, const char *name) {
  uint64_t hash = (uint64_t)(uintptr_t)name * 0x9e3779b97f4a7c15u;
  for (uint32_t i = (uint32_t)(hash >> 40) & (scope->n_slots - 1);; i = (i + 1) & (scope->n_slots - 1)) {
    uint32_t *slot = &scope->slots[i];
    if (!*slot || scope->bindings.items[*slot - 1].name == name) return slot;
  }
}

Binding *scope_find(const Scope *scope, const char *name) {
  if (scope->n_slots) {
    uint32_t index = *slot_of(scope, name);
    return index ? &scope->bindings.items[index - 1] : NULL;
  }
  for (size_t i = scope->bindings.n; i-- > 0;) {
    if (scope->bindings.items[i].name == name) return &scope->bindings.items[i];
  }
  return NULL;
}

Binding *scope_search(const Scope *scope, const char *name) {
  for (; scope; scope = scope->parent) {
    Binding *found = scope_find(scope, name);
    if (found) return found;
  }
  return NULL;
}

static void rehash(Arena *arena, Scope *scope) {
  scope->n_slots = scope->n_slots ? 2 * scope->n_slots : 4 * SHORT_SCOPE;
  scope->slots = ARENA_ARRAY(arena, uint32_t, scope->n_slots);
  for (size_t i = 0; i < scope->bindings.n; i++) *slot_of(scope, scope->bindings.items[i].name) = (uint32_t)i + 1;
}

/* Replacing is what assignment to a local variable does. */
Binding *scope_put(Arena *arena, Scope *scope, const char *name, Value value) {
  Binding *found = scope_find(scope, name);
  if (found) {
    found->value = value;
    return found;
  }
  vec_push(arena, &scope->bindings, (Binding){.name = name, .value = value});
  size_t n = scope->bindings.n;
  if (n > SHORT_SCOPE && 2 * n > scope->n_slots) rehash(arena, scope);
  else if (scope->n_slots) *slot_of(scope, name) = (uint32_t)n;
  return &scope->bindings.items[n - 1];
}

/* Inner names come first, so they win among equally near ones. */
const char *scope_nearest(Arena *arena, const Scope *scope, const char *name) {
  VEC(const char *) known = {0};
  for (; scope; scope = scope->parent) {
    for (size_t i = 0; i < scope->bindings.n; i++) vec_push(arena, &known, scope->bindings.items[i].name);
  }
  return diag_nearest(name, known.items, known.n);
}

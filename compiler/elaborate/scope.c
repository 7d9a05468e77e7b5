/* Scope: a list of bindings, searched from its end while it is short, by a hash of the pointers when it is long. */
#include "elaborate/scope.h"

#include "diag/diag.h"

enum { SHORT_SCOPE = 8 };

Scope *scope_new(Arena *arena, Scope *parent, Module *module) {
  Scope *scope = ARENA_NEW(arena, Scope);
  scope->parent = parent;
  scope->module = module ? module : parent ? parent->module : NULL;
  return scope;
}

void scope_reserve(Arena *arena, Scope *scope, uint32_t n) {
  if (scope->bindings.cap) return;
  scope->bindings.items = ARENA_ARRAY(arena, Binding, n);
  scope->bindings.cap = n;
}

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

const char *scope_nearest(Arena *arena, const Scope *scope, const char *name) {
  VEC(const char *) known = {0};
  for (; scope; scope = scope->parent) {
    for (size_t i = 0; i < scope->bindings.n; i++) vec_push(arena, &known, scope->bindings.items[i].name);
  }
  return diag_nearest(name, known.items, known.n);
}

/* Scope: names and their values, one inside another: primitives, standard layers, the files', a module's, a function's.
 *
 * Names are interned: they are compared as pointers. Bindings stand in the order in which they were made. */
#ifndef TFM_ELABORATE_SCOPE_H
#define TFM_ELABORATE_SCOPE_H

#include "elaborate/values.h"

typedef struct Binding {
  const char *name;
  Value value;
  SrcSpan span;   /* where it was defined; none for primitives and locals */
  bool is_member; /* of a layer, no config value */
} Binding;

struct Scope {
  Scope *parent;
  Module *module; /* whose names these are; NULL above all modules */
  VEC(Binding) bindings;
  uint32_t *slots; /* for many names: index + 1 by hash of the pointer */
  uint32_t n_slots;
};

Scope *scope_new(Arena *arena, Scope *parent, Module *module);
/* Room for n more names; more than that grow it. */
void scope_reserve(Arena *arena, Scope *scope, uint32_t n);
/* In this scope alone; NULL if it is not there. Valid until the next scope_put. */
Binding *scope_find(const Scope *scope, const char *name);
/* In this scope or an outer one. */
Binding *scope_search(const Scope *scope, const char *name);
/* Adds or replaces. */
Binding *scope_put(Arena *arena, Scope *scope, const char *name, Value value);
/* The known name nearest to `name`, or NULL. */
const char *scope_nearest(Arena *arena, const Scope *scope, const char *name);

#endif

/* Modules: layers with a configuration, their members, weights and paths. */
#ifndef TFM_ELABORATE_MODULES_H
#define TFM_ELABORATE_MODULES_H

#include "elaborate/elaborate_call.h"
#include "elaborate/elaborator.h"

/* What -D says about a model's config: an expression in place of a default. */
typedef struct Override {
  const char *name;
  const Ast *expression;
} Override;

typedef struct Overrides {
  VEC(Override) items;
} Overrides;

/* The layer with its configuration: a template. `overrides` is of a model only, else NULL. */
Value configure(Elaborator *e, Layer *layer, const Arguments *arguments, const Ast *place, const Overrides *overrides);
/* Makes the module of a template, with its weights under the path. */
Value make_module(Elaborator *e, const Template *t, const char *path);
/* The module made where it is applied: one for each place in the text and each module that holds it. */
Value inline_module(Elaborator *e, const Template *t, Scope *scope);
/* False (after reporting) if a parameter stands twice; `what` is "config value" or "parameter". */
bool parameters_differ(Elaborator *e, const char *what, const Ast *params);

/* The members of an AST_BLOCK, in order. After an error the next one is evaluated; the faulty one is poison. */
void run_members(Elaborator *e, const Ast *block, Module *m);
/* What may stand as an initial value: a number, or what primitives of that name give. NULL after an error. */
const struct Initial *initial_of(Elaborator *e, const Ast *expression, Scope *scope);
/* The modules of a value that has some without a name, under the path. */
Value make_new_modules(Elaborator *e, Value v, const char *path);
/* What stands below a list's path: the number of an element, or what `as` puts in its place. */
const char *list_path(Elaborator *e, const List *list, uint32_t i);
/* a.b; an empty part adds nothing. */
const char *join_path(Elaborator *e, const char *a, const char *b);

#endif

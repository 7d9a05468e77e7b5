/* Call: applying functions, layers, modules and lists to arguments.
 *
 * In: values and nodes of the tree. Out: values; POISON or false after an error, which is reported. */
#ifndef TFM_ELABORATE_CALL_H
#define TFM_ELABORATE_CALL_H

#include "elaborate/elaborator.h"

typedef struct Argument {
  const char *name; /* NULL: given by position */
  Value value;
  SrcSpan span;
} Argument;

typedef struct Arguments {
  uint32_t n_by_position, n; /* those by position stand first */
  Argument *items;
} Arguments;

/* The result of a function: its value, and where it says so. */
typedef struct Result {
  Value value;
  const Ast *place; /* AST_RETURN, or the expression of `= expr`; NULL after an error */
} Result;

// ---- arguments ----

/* The arguments of an AST_CALL (the parser refuses one by position after one by name), `first` before them unless it is
 * MISSING. False after an error. */
bool eval_arguments(Elaborator *e, const Ast *call, Value first, Scope *scope, Arguments *arguments);
void arguments_of_one(Elaborator *e, Value value, Arguments *arguments);

// ---- calls ----

/* f applied to arguments at a place in the text; `scope` is where that stands. */
Value apply(Elaborator *e, Value f, const Arguments *arguments, const Ast *place, Scope *scope);
Result call_function(Elaborator *e, Function *f, const char *title, const Arguments *arguments, const Ast *place);

/* values[i] = what was given for names[i], or MISSING. False after an error. */
bool bind_arguments(Elaborator *e, const char *title, uint32_t n, const char *const *names, const Arguments *arguments,
                    Value *values);
/* Names of an AST_PARAMS. */
const char *const *parameter_names(Elaborator *e, const Ast *params);
/* The name of a run-time size that a dimension of a type binds, or NULL. */
const char *free_size(const Ast *dim, const Scope *scope);
/* The dtype that a type names; false after an error. */
bool dtype_of(Elaborator *e, const Ast *type, DType *dtype);

#endif

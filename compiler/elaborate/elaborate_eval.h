/* Eval: the value of an expression. */
#ifndef TFM_ELABORATE_EVAL_H
#define TFM_ELABORATE_EVAL_H

#include "elaborate/elaborator.h"

/* Poison after an error. `e->here` is the same afterwards. */
Value eval(Elaborator *e, const Ast *node, Scope *scope);
/* What an index gives (elaborate_index.c): one i32 tensor selects rows of a table; everything else slices. */
Value eval_index(Elaborator *e, const Ast *node, Value value, Scope *scope);
/* The items of a list: each a size. NULL after an error. */
const SizeList *eval_sizes(Elaborator *e, const Ast *list, Scope *scope);
/* What `if` asks: decided now. False after an error. */
bool eval_decision(Elaborator *e, const Ast *condition, Scope *scope, bool *decision);
/* The value of a name; poison after an error. */
Value name_value(Elaborator *e, const char *name, const Scope *scope);

#endif

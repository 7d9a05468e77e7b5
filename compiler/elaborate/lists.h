/* Lists: of any values, made when compiling; their elements, and calls of lists of modules and functions. */
#ifndef TFM_ELABORATE_LISTS_H
#define TFM_ELABORATE_LISTS_H

#include "elaborate/elaborate_call.h"

enum {
  MAX_ROUNDS = 65536,   /* of a `for`, and modules of a repetition */
  MAX_LIST_DEPTH = 256, /* lists and modules without a name in one another */
};

/* A list of these values, which the list takes over; `paths` may be NULL. Poison after an error. */
Value list_value(Elaborator *e, uint32_t n, Value *items, const char **paths);
/* The value as a list: a list, or the modules of n * Name(config). NULL if it is none. */
const List *list_of(Elaborator *e, Value v);
/* The elements as sizes. NULL after an error. */
const SizeList *sizes_of_list(Elaborator *e, const List *list);
/* Both one after the other. */
Value list_join(Elaborator *e, const List *a, const List *b);
/* The elements first, first + step, ... before `last`. */
Value list_part(Elaborator *e, const List *list, uint32_t first, uint32_t last, uint32_t step);
/* What n * v repeats: modules, made or not, functions, lists of these. */
bool is_repeatable(Value v);
/* n times a module that has no name (each with its own weights) or what is made already (shared weights). */
Value repeat(Elaborator *e, Value n, Value v, const Ast *place);

/* AST_LIST and AST_COMPREHENSION. */
Value eval_list(Elaborator *e, const Ast *node, Scope *scope);
Value eval_comprehension(Elaborator *e, const Ast *node, Scope *scope);

/* What the name of a `for` stands for, round by round. NULL after an error. */
const List *rounds_of(Elaborator *e, const Ast *over, Scope *scope);

/* The first result goes on as the next first argument; the other results are stacked along a new first axis. */
Value call_list(Elaborator *e, const List *list, const Arguments *arguments, const Ast *place, Scope *scope);

#endif

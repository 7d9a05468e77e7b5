/* Statements: the bodies of functions. In: nodes of the tree. Out: what they return, and names in a scope. */
#ifndef TFM_ELABORATE_STATEMENTS_H
#define TFM_ELABORATE_STATEMENTS_H

#include "elaborate/elaborate_call.h"

/* Runs the statements of an AST_BLOCK up to a `return`, which sets *result; without one it is left as it is. */
void run_block(Elaborator *e, const Ast *block, Scope *scope, Result *result);
/* `require`, a member or a statement. False if what it requires does not hold. */
bool run_require(Elaborator *e, const Ast *node, Scope *scope);
/* The branch of an AST_IF that is taken: a block, or NULL. False after an error. */
bool chosen_branch(Elaborator *e, const Ast *node, Scope *scope, const Ast **block);

#endif

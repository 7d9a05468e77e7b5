/* What the text tells of the value of an expression: the layer that its module is of, and what a call binds.
 *
 * In: an expression, where it stands. Out: a symbol, or NULL where only an elaboration could tell. */
#ifndef TFM_LSP_RESOLVE_H
#define TFM_LSP_RESOLVE_H

#include "lsp/symbols.h"

/* The layer whose module an expression makes or holds. */
Symbol *names_layer_of(const Ast *expression, const NameScope *scope);
/* What the module left of a dot has under the name behind it. */
Symbol *names_member(const Ast *dot, const NameScope *scope);
/* What a call binds its arguments to: a SYMBOL_LAYER (config) or SYMBOL_FUNCTION. */
Symbol *names_callee(const Ast *callee, const NameScope *scope);
/* The function `forward` of a layer. */
Symbol *names_forward(const Symbol *layer);

#endif

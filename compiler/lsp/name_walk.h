/* The walk through a layer or a function. First all is declared that others may see (config values, members, functions
 * and their parameters), then texts are walked.
 *
 * In: a symbol with its node and its scope. Out: symbols and places in the Names of the walk. */
#ifndef TFM_LSP_NAME_WALK_H
#define TFM_LSP_NAME_WALK_H

#include "lsp/symbols.h"

void declare_layer(Walk *walk, Symbol *layer);
void declare_function(Walk *walk, Symbol *function);
void walk_layer(Walk *walk, Symbol *layer);
void walk_function(Walk *walk, Symbol *function);

#endif

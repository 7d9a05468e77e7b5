/* See resolve.h. */
#include "lsp/resolve.h"

#include <string.h>

enum { MOST_HOPS = 32 }; /* from name to name, so that a = b, b = a ends */

static Symbol *layer_of(const Ast *node, const NameScope *scope, int hops);

static Symbol *layer_of_symbol(const Symbol *symbol, int hops) {
  if (!symbol || symbol->kind != SYMBOL_MEMBER || !symbol->within || !symbol->within->scope) return NULL;
  return layer_of(symbol->node->children[0], symbol->within->scope, hops - 1);
}

/* What a module holds under a name. */
static Symbol *member_of(const Ast *dot, const NameScope *scope, int hops) {
  const Symbol *layer = layer_of(dot->children[0], scope, hops - 1);
  return layer && layer->scope ? map_get(&layer->scope->names, dot->name) : NULL;
}

static Symbol *layer_of(const Ast *node, const NameScope *scope, int hops) {
  if (!node || hops <= 0) return NULL;
  switch (node->kind) {
    case AST_NAME:
      return layer_of_symbol(scope_symbol(scope, node->name), hops);
    case AST_DOT:
      return layer_of_symbol(member_of(node, scope, hops), hops);
    case AST_CALL: {
      Symbol *symbol = node->children[0]->kind == AST_NAME ? scope_symbol(scope, node->children[0]->name) : NULL;
      return symbol && symbol->kind == SYMBOL_LAYER ? symbol : NULL;
    }
    case AST_BINARY:
      return strcmp(node->name, "*") == 0 ? layer_of(node->children[1], scope, hops - 1) : NULL;
    case AST_INDEX:
    case AST_PLACED:
    case AST_COMPREHENSION:
      return layer_of(node->children[0], scope, hops - 1);
    case AST_LIST:
      return node->n_children ? layer_of(node->children[0], scope, hops - 1) : NULL;
    case AST_CHOICE:
      return layer_of(node->children[1], scope, hops - 1);
    default:
      return NULL;
  }
}

Symbol *names_layer_of(const Ast *expression, const NameScope *scope) { return layer_of(expression, scope, MOST_HOPS); }

Symbol *names_member(const Ast *dot, const NameScope *scope) { return member_of(dot, scope, MOST_HOPS); }

Symbol *names_forward(const Symbol *layer) {
  Symbol *forward = layer->scope ? map_get(&layer->scope->names, "forward") : NULL;
  return forward && forward->kind == SYMBOL_FUNCTION ? forward : NULL;
}

/* Name(config) binds config values; what is called otherwise is a function, or a module, whose forward it is. */
Symbol *names_callee(const Ast *callee, const NameScope *scope) {
  Symbol *symbol = callee->kind == AST_NAME  ? scope_symbol(scope, callee->name)
                   : callee->kind == AST_DOT ? member_of(callee, scope, MOST_HOPS)
                                             : NULL;
  if (symbol && (symbol->kind == SYMBOL_LAYER || symbol->kind == SYMBOL_FUNCTION)) return symbol;
  const Symbol *layer = names_layer_of(callee, scope);
  return layer ? names_forward(layer) : NULL;
}

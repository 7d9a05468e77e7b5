/* The walk through layers, functions and expressions that finds what names stand for. See name_walk.h.
 *
 * A tree is at most AST_MAX_DEPTH deep, so the walk recurses. Members of a layer are declared before its functions are
 * walked, since those run later; locals are declared where they are first assigned. */
#include "lsp/name_walk.h"

#include <string.h>

#include "lsp/resolve.h"

// ---- expressions ----

static void walk_expression(Walk *walk, const Ast *node, NameScope *scope);

/* The span of an expression in brackets of its own has them. */
static SrcSpan name_span(const Ast *node) {
  if (node->kind == AST_DOT)
    return word_after(node->span.source, node->children[0]->span.end, node->span.end, node->name);
  return word_after(node->span.source, node->span.begin, node->span.end, node->name);
}

/* Arguments by name are places of what they bind. */
static void walk_call(Walk *walk, const Ast *call, NameScope *scope) {
  const Symbol *callee = names_callee(call->children[0], scope);
  walk_expression(walk, call->children[0], scope);
  for (uint32_t i = 1; i < call->n_children; i++) {
    const Ast *argument = call->children[i];
    Symbol *parameter =
        argument->name && callee && callee->scope ? map_get(&callee->scope->names, argument->name) : NULL;
    const bool is_bound = parameter && (parameter->kind == SYMBOL_CONFIG || parameter->kind == SYMBOL_PARAMETER);
    if (is_bound) note_name(walk, parameter, name_at_begin(argument->span, argument->name), false);
    walk_expression(walk, argument->children[0], scope);
  }
}

/* The name of a comprehension is seen by its element alone. */
static void walk_comprehension(Walk *walk, const Ast *node, NameScope *scope) {
  const Ast *item = node->children[0];
  NameScope *inner = name_scope_new(walk->names->arena, scope);
  walk_expression(walk, node->children[1], scope);
  const SrcSpan word = word_after(node->span.source, item->span.end, node->span.end, "for");
  const SrcSpan name = word.source ? word_after(node->span.source, word.end, node->span.end, node->name) : NO_SPAN;
  if (name.source) declare_name(walk, inner, SYMBOL_LOCAL, node, name);
  walk_expression(walk, item, inner);
}

static void walk_dot(Walk *walk, const Ast *node, NameScope *scope) {
  walk_expression(walk, node->children[0], scope);
  note_name(walk, names_member(node, scope), name_span(node), false);
}

static void walk_expression(Walk *walk, const Ast *node, NameScope *scope) {
  if (!node) return;
  switch (node->kind) {
    case AST_NAME:
      note_name(walk, scope_symbol(scope, node->name), name_span(node), false);
      return;
    case AST_CALL:
      walk_call(walk, node, scope);
      return;
    case AST_DOT:
      walk_dot(walk, node, scope);
      return;
    case AST_COMPREHENSION:
      walk_comprehension(walk, node, scope);
      return;
    case AST_PLACED:
      walk_expression(walk, node->children[0], scope);
      note_placeholders(walk, scope, node->span.source, node->children[0]->span.end);
      return;
    default:
      for (uint32_t i = 0; i < node->n_children; i++) walk_expression(walk, node->children[i], scope);
  }
}

// ---- functions ----

static bool is_parameter(const Ast *params, const char *name) {
  for (uint32_t i = 0; i < params->n_children; i++)
    if (strcmp(params->children[i]->name, name) == 0) return true;
  return false;
}

/* Whether something within the module or function has the name: only then a type does not bind a size of it. */
static bool is_inner_name(const Walk *walk, const NameScope *scope, const char *name) {
  if (map_has(&scope->names, name)) return true;
  return walk->layer && walk->layer->scope && map_has(&walk->layer->scope->names, name);
}

static void declare_sizes(Walk *walk, const Ast *params, NameScope *scope) {
  for (uint32_t i = 0; i < params->n_children; i++) {
    const Ast *type = params->children[i]->children[0];
    for (uint32_t k = 0; type && k < type->n_children; k++) {
      const Ast *dim = type->children[k]->kind == AST_RAGGED ? type->children[k]->children[0] : type->children[k];
      if (dim->kind != AST_NAME || dim->flag || is_parameter(params, dim->name)) continue;
      if (!is_inner_name(walk, scope, dim->name))
        declare_name(walk, scope, SYMBOL_SIZE, dim, name_at_begin(dim->span, dim->name));
    }
  }
}

/* Sizes that stand alone in a type were noted with their declaration. */
static void walk_type(Walk *walk, const Ast *type, NameScope *scope) {
  for (uint32_t k = 0; type && k < type->n_children; k++) {
    const Ast *dim = type->children[k]->kind == AST_RAGGED ? type->children[k]->children[0] : type->children[k];
    const Symbol *symbol = dim->kind == AST_NAME ? scope_symbol(scope, dim->name) : NULL;
    if (!symbol || symbol->node != dim) walk_expression(walk, dim, scope);
  }
}

static void declare_each(Walk *walk, const Ast *params, NameScope *scope, SymbolKind kind) {
  for (uint32_t i = 0; i < params->n_children; i++) {
    const Ast *param = params->children[i];
    declare_name(walk, scope, kind, param, name_at_end(param->span, param->name));
  }
}

static void walk_params(Walk *walk, const Ast *params, NameScope *scope) {
  for (uint32_t i = 0; i < params->n_children; i++) {
    walk_type(walk, params->children[i]->children[0], scope);
    walk_expression(walk, params->children[i]->children[1], scope);
  }
}

static void walk_statement(Walk *walk, const Ast *node, NameScope *scope);

static void walk_assign(Walk *walk, const Ast *node, NameScope *scope) {
  const Ast *names = node->children[0];
  walk_expression(walk, node->children[1], scope);
  for (uint32_t i = 0; i < names->n_children; i++)
    declare_name(walk, scope, SYMBOL_LOCAL, names->children[i],
                 name_at_begin(names->children[i]->span, names->children[i]->name));
}

static void walk_require(Walk *walk, const Ast *node, NameScope *scope) {
  walk_expression(walk, node->children[0], scope);
  note_placeholders(walk, scope, node->span.source, node->children[0]->span.end);
}

static void walk_statement(Walk *walk, const Ast *node, NameScope *scope) {
  if (!node) return;
  switch (node->kind) {
    case AST_ASSIGN:
      walk_assign(walk, node, scope);
      return;
    case AST_REQUIRE:
      walk_require(walk, node, scope);
      return;
    case AST_FOR:
      walk_expression(walk, node->children[0], scope);
      declare_name(walk, scope, SYMBOL_LOCAL, node, name_at_end(node->span, node->name));
      walk_statement(walk, node->children[1], scope);
      return;
    case AST_IF:
      walk_expression(walk, node->children[0], scope);
      walk_statement(walk, node->children[1], scope);
      walk_statement(walk, node->children[2], scope);
      return;
    case AST_BLOCK:
      for (uint32_t i = 0; i < node->n_children; i++) walk_statement(walk, node->children[i], scope);
      return;
    case AST_RETURN:
      for (uint32_t i = 0; i < node->n_children; i++) walk_expression(walk, node->children[i]->children[0], scope);
      return;
    default:
      walk_expression(walk, node, scope);
  }
}

void declare_function(Walk *walk, Symbol *function) {
  if (!function->scope) return;
  const Ast *params = function->node->children[0];
  walk->function = function;
  declare_sizes(walk, params, function->scope);
  declare_each(walk, params, function->scope, SYMBOL_PARAMETER);
  walk->function = NULL;
}

void walk_function(Walk *walk, Symbol *function) {
  if (!function->scope) return;
  walk->function = function;
  walk_params(walk, function->node->children[0], function->scope);
  walk_statement(walk, function->node->children[1], function->scope);
  walk->function = NULL;
}

// ---- layers ----

/* Where two branches have a function of one name, the first is what the name stands for. */
static void declare_method(Walk *walk, const Ast *node, NameScope *scope) {
  Symbol *function = declare_name(walk, scope, SYMBOL_FUNCTION, node, name_at_end(node->span, node->name));
  if (function->node != node) {
    function = arena_copy(walk->names->arena, function, sizeof *function);
    vec_push(walk->names->arena, &walk->names->symbols, function);
  }
  function->node = node;
  function->scope = name_scope_new(walk->names->arena, scope);
  map_put_n(&walk->functions, &node, sizeof node, function);
}

/* Calls what is to be done for each member of a block, those of `if` too, whose branches may define the same. */
static void each_member(Walk *walk, const Ast *block, NameScope *scope,
                        void (*act)(Walk *walk, const Ast *member, NameScope *scope)) {
  for (uint32_t i = 0; block && i < block->n_children; i++) {
    const Ast *node = block->children[i];
    act(walk, node, scope);
    for (; node && node->kind == AST_IF; node = node->children[2]) each_member(walk, node->children[1], scope, act);
    if (node && node->kind == AST_BLOCK) each_member(walk, node, scope, act);
  }
}

static void declare_member(Walk *walk, const Ast *node, NameScope *scope) {
  const SrcSpan name = node->name ? name_at_end(node->span, node->name) : NO_SPAN;
  if (node->kind == AST_MEMBER) declare_name(walk, scope, SYMBOL_MEMBER, node, name);
  if (node->kind == AST_WEIGHT) declare_name(walk, scope, SYMBOL_WEIGHT, node, name);
  if (node->kind == AST_FN) declare_method(walk, node, scope);
}

static Symbol *method_of(const Walk *walk, const Ast *node) {
  const MapEntry *entry = node->kind == AST_FN ? map_find(&walk->functions, &node, sizeof node) : NULL;
  return entry ? entry->value : NULL;
}

static void declare_parameters(Walk *walk, const Ast *node, NameScope *scope) {
  Symbol *function = method_of(walk, node);
  (void)scope;
  if (function) declare_function(walk, function);
}

void declare_layer(Walk *walk, Symbol *layer) {
  const Ast *block = layer->node->children[1];
  if (!layer->scope) return;
  walk->layer = layer;
  declare_each(walk, layer->node->children[0], layer->scope, SYMBOL_CONFIG);
  each_member(walk, block, layer->scope, declare_member);
  each_member(walk, block, layer->scope, declare_parameters);
  walk->layer = NULL;
}

static void walk_generate(Walk *walk, const Ast *node, NameScope *scope) {
  const Symbol *forward = names_forward(walk->layer);
  Symbol *input = forward && forward->scope ? map_get(&forward->scope->names, node->name) : NULL;
  const uint32_t from = node->span.begin + (uint32_t)strlen("generate");
  note_name(walk, input, word_after(node->span.source, from, node->span.end, node->name), false);
  for (uint32_t i = 0; i < node->n_children; i++) walk_expression(walk, node->children[i], scope);
}

/* What `as` says stands behind all else of a member. */
static void walk_definition(Walk *walk, const Ast *node, NameScope *scope) {
  uint32_t end = node->span.end;
  for (uint32_t i = 0; i < node->n_children; i++) {
    walk_expression(walk, node->children[i], scope);
    if (node->children[i]) end = node->children[i]->span.end;
  }
  if (node->text) note_placeholders(walk, scope, node->span.source, end);
}

static void walk_member(Walk *walk, const Ast *node, NameScope *scope) {
  switch (node->kind) {
    case AST_FN:
      if (method_of(walk, node)) walk_function(walk, method_of(walk, node));
      return;
    case AST_REQUIRE:
      walk_require(walk, node, scope);
      return;
    case AST_GENERATE:
      walk_generate(walk, node, scope);
      return;
    case AST_IF:
      for (; node && node->kind == AST_IF; node = node->children[2]) walk_expression(walk, node->children[0], scope);
      return;
    case AST_TRAIN:
      note_name(walk, map_get(&scope->names, node->name), name_at_end(node->span, node->name), false);
      break;
    default:
      break;
  }
  walk_definition(walk, node, scope);
}

/* Config values see those before them; members see all; functions see members. */
void walk_layer(Walk *walk, Symbol *layer) {
  if (!layer->scope) return;
  walk->layer = layer;
  walk_params(walk, layer->node->children[0], layer->scope);
  each_member(walk, layer->node->children[1], layer->scope, walk_member);
  walk->layer = NULL;
}

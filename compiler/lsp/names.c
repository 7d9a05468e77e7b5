/* What the files of a program define, and what stands at a place. See names.h. What stands within layers and functions
 * is walked by name_walk.c. */
#include "lsp/names.h"

#include <string.h>

#include "elaborate/elaborate.h"
#include "lsp/name_walk.h"

// ---- files ----

/* Declares what a file defines. Standard names that begin with `_` are seen by the standard files alone (`inside`). */
static void declare_file(Walk *walk, const Ast *file, NameScope *scope, NameScope *inside) {
  for (uint32_t i = 0; i < file->n_children; i++) {
    const Ast *node = file->children[i];
    const bool is_layer = node->kind == AST_LAYER;
    if (!is_layer && node->kind != AST_FN) continue;
    NameScope *place = walk->is_standard && node->name[0] == '_' ? inside : scope;
    Symbol *symbol =
        declare_name(walk, place, is_layer ? SYMBOL_LAYER : SYMBOL_FUNCTION, node, name_at_end(node->span, node->name));
    if (symbol->node == node) symbol->scope = name_scope_new(walk->names->arena, inside);
  }
}

/* `checkpoint` names config values of the models beside it on its left sides; the rest are keys of a file. */
static void note_checkpoint(Walk *walk, const Ast *file, const Ast *checkpoint) {
  const Ast *block = checkpoint->children[1];
  for (uint32_t i = 0; i < file->n_children; i++) {
    const Ast *model = file->children[i];
    if (model->kind != AST_LAYER || !model->flag) continue;
    const Symbol *symbol = scope_symbol(walk->names->files, model->name);
    for (uint32_t k = 0; symbol && symbol->scope && k < block->n_children; k++) {
      const Ast *entry = block->children[k];
      if (entry->kind != AST_SETTING) continue;
      Symbol *config = map_get(&symbol->scope->names, entry->name);
      if (config && config->kind == SYMBOL_CONFIG)
        note_name(walk, config, name_at_begin(entry->span, entry->name), false);
    }
  }
}

/* What stands within all layers and functions of files. */
static void walk_all(Walk *walk) {
  Names *names = walk->names;
  const size_t n = names->symbols.n; /* those of files come first */
  for (size_t i = 0; i < n; i++) {
    Symbol *symbol = names->symbols.items[i];
    (symbol->kind == SYMBOL_LAYER ? declare_layer : declare_function)(walk, symbol);
  }
  for (size_t i = 0; i < n; i++) {
    Symbol *symbol = names->symbols.items[i];
    (symbol->kind == SYMBOL_LAYER ? walk_layer : walk_function)(walk, symbol);
  }
}

Names *names_standard(Arena *arena) {
  Names *names = ARENA_NEW(arena, Names);
  Map interned = map_new(arena);
  Diag diag = diag_new(arena);
  NameScope *standard = name_scope_new(arena, NULL), *inside = name_scope_new(arena, standard);
  *names = (Names){.arena = arena, .files = standard};
  Walk walk = {.names = names, .is_standard = true, .functions = map_new(arena)};
  for (uint32_t i = 0; i < N_STANDARD_FILES; i++) {
    const StandardFile file = standard_file(i);
    const Ast *tree = parse_file(arena, &interned, &diag, source_new(arena, file.name, file.text, file.size));
    if (tree) declare_file(&walk, tree, standard, inside);
  }
  walk_all(&walk);
  return names;
}

Names *names_of(Arena *arena, const ParsedProgram *program, const Names *standard) {
  Names *names = ARENA_NEW(arena, Names);
  *names = (Names){.arena = arena, .files = name_scope_new(arena, standard->files)};
  Walk walk = {.names = names, .functions = map_new(arena)};
  for (size_t i = 0; i < program->files.n; i++)
    if (program->files.items[i].ast) declare_file(&walk, program->files.items[i].ast, names->files, names->files);
  walk_all(&walk);
  for (size_t i = 0; i < program->files.n; i++) {
    const Ast *file = program->files.items[i].ast;
    for (uint32_t k = 0; file && k < file->n_children; k++)
      if (file->children[k]->kind == AST_CHECKPOINT) note_checkpoint(&walk, file, file->children[k]);
  }
  return names;
}

// ---- questions ----

const Occurrence *names_at(const Names *names, const Source *source, uint32_t offset) {
  const Occurrence *found = NULL;
  for (size_t i = 0; i < names->occurrences.n; i++) {
    const Occurrence *place = &names->occurrences.items[i];
    if (place->span.source != source || offset < place->span.begin || offset > place->span.end) continue;
    if (!found || offset < place->span.end) found = place; /* of two that touch the one behind the offset */
  }
  return found;
}

static const Ast *body_of(const Ast *node) {
  return node->kind == AST_LAYER || node->kind == AST_FN ? node->children[1] : NULL;
}

SrcSpan symbol_extent(const Symbol *symbol) {
  const Ast *body = body_of(symbol->node);
  const SrcSpan span = symbol->node->span;
  return body && body->span.end > span.end ? (SrcSpan){span.source, span.begin, body->span.end} : span;
}

Symbol *names_around(const Names *names, const Source *source, uint32_t offset, SymbolKind kind) {
  Symbol *found = NULL;
  for (size_t i = 0; i < names->symbols.n; i++) {
    Symbol *symbol = names->symbols.items[i];
    const SrcSpan extent = symbol_extent(symbol);
    if (symbol->kind != kind || !body_of(symbol->node) || extent.source != source) continue;
    if (extent.begin <= offset && offset <= extent.end && (!found || extent.begin > found->node->span.begin))
      found = symbol;
  }
  return found;
}

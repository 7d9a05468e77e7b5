/* Symbols: what names stand for, the scopes that have them, and every place in the text that names one.
 *
 * In: nodes that declare names, places that use them. Out: symbols by scope, occurrences in the order of the walk
 * (name_walk.h). Refuses nothing. */
#ifndef TFM_LSP_SYMBOLS_H
#define TFM_LSP_SYMBOLS_H

#include "parse/include.h"

typedef enum SymbolKind {
  SYMBOL_LAYER, /* of a file: layers and models */
  SYMBOL_FUNCTION,
  SYMBOL_CONFIG, /* a config value of a layer */
  SYMBOL_MEMBER,
  SYMBOL_WEIGHT,
  SYMBOL_PARAMETER,
  SYMBOL_SIZE, /* a size that a type names */
  SYMBOL_LOCAL,
  N_SYMBOL_KINDS
} SymbolKind;

typedef struct NameScope NameScope;

typedef struct Symbol {
  SymbolKind kind;
  const char *name;
  const Ast *node; /* what declares it first: AST_LAYER, AST_FN, AST_PARAM, AST_MEMBER, AST_WEIGHT, AST_NAME ... */
  SrcSpan span;    /* of the name there */
  struct Symbol *within; /* the layer or function around it, or NULL */
  NameScope *scope;      /* of a layer: config and members; of a function: parameters and locals; else NULL */
  bool is_standard;
} Symbol;

struct NameScope {
  NameScope *parent;
  Map names; /* -> Symbol */
};

typedef struct Occurrence {
  SrcSpan span;
  Symbol *symbol;
  bool is_declaration;
  bool in_text; /* "{name}" within a string */
} Occurrence;

typedef struct Names {
  Arena *arena;
  NameScope *files;      /* the program's; its parents: the standard ones */
  VEC(Symbol *) symbols; /* of the program, in the order of the text */
  VEC(Occurrence) occurrences;
} Names;

/* Where the walk over a tree stands. */
typedef struct Walk {
  Names *names;
  Symbol *layer, *function; /* the innermost; NULL: none */
  Map functions;            /* address of an AST_FN of a layer -> Symbol: branches may each have one of a name */
  bool is_standard;
} Walk;

NameScope *name_scope_new(Arena *arena, NameScope *parent);
Symbol *scope_symbol(const NameScope *scope, const char *name); /* outer scopes too; NULL: unknown */
/* A symbol of this scope alone: the one that it has, or a new one. Its place is noted as a declaration. */
Symbol *declare_name(Walk *walk, NameScope *scope, SymbolKind kind, const Ast *node, SrcSpan span);
/* Nothing for a symbol that is NULL, or a span without a source. */
void note_name(Walk *walk, Symbol *symbol, SrcSpan span, bool is_declaration);
/* Places "{name}" in the string that begins at or after `from`. */
void note_placeholders(Walk *walk, const NameScope *scope, Source *source, uint32_t from);
/* The span of a word at or behind `from`, comments and strings skipped; no span if it does not come before `end`. */
SrcSpan word_after(Source *source, uint32_t from, uint32_t end, const char *word);
/* The end of a span that ends with a name, and the beginning of one that begins with it. */
SrcSpan name_at_end(SrcSpan span, const char *name);
SrcSpan name_at_begin(SrcSpan span, const char *name);

#endif

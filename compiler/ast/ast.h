/* AST: what a .tfm file says, node by node, each with its span.
 *
 * In: nodes made by parse. Out: a tree that elaborate walks and ast_print prints. Nodes live in the arena of the
 * parse, point into its table of names and are never changed afterwards. Kinds and their children: ast_nodes.def. */
#ifndef TFM_AST_AST_H
#define TFM_AST_AST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "diag/source.h"

typedef enum AstKind {
#define AST(Enum, text, children, meaning) AST_##Enum,
#include "ast/ast_nodes.def"
  N_AST_KINDS
} AstKind;

/* How deep a tree that parse makes can be. A recursive walk over it fits a stack of 8 MiB (the default of Linux) with
 * frames of up to 1.5 KiB per level, and leaves a quarter of it to the callers. */
enum { AST_MAX_DEPTH = 4000 };

typedef struct Ast Ast;
struct Ast {
  AstKind kind;
  uint32_t depth; /* 1 for a leaf, else one more than the deepest child */
  SrcSpan span;
  const char *name; /* interned: equal names are equal pointers */
  const char *text; /* a string, a path after `as`, a message */
  bool flag, is_integer;
  int64_t integer;
  double number;
  uint32_t n_children;
  Ast **children;
};

const char *ast_kind_text(AstKind kind);
/* `x in list`. */
bool ast_is_in(const Ast *node);
/* The tree as .tfm text again: parsing it gives the same tree. */
void ast_print(StrBuf *out, const Ast *node);
/* The tree one node a line, indented, with line:column: for `dump --stage=ast`. */
void ast_dump(StrBuf *out, Arena *arena, const Ast *node);

#endif

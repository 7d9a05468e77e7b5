/* The tree as text, in two forms.
 *
 * In: a tree. Out: `.tfm` text that parses to the same tree again, or one node a line for `dump --stage=ast`. Nothing
 * is refused: every tree that parse can make has a text. The functions recurse, which AST_MAX_DEPTH makes safe. */
#include "ast/ast.h"

#include <string.h>

#include "base/strbuf.h"

static const char *const kind_texts[N_AST_KINDS] = {
#define AST(Enum, text, children, meaning) [AST_##Enum] = text,
#include "ast/ast_nodes.def"
};

const char *ast_kind_text(AstKind kind) { return kind_texts[kind]; }

bool ast_is_in(const Ast *node) { return node->kind == AST_COMPARE && strcmp(node->name, "in") == 0; }

// ---- dump ----

/* What a node holds besides its children. A path and a text are quoted, since they may contain anything. */
static void dump_attributes(StrBuf *out, const Ast *node) {
  if (node->name) {
    strbuf_add_char(out, ' ');
    if (node->kind == AST_INCLUDE)
      strbuf_add_quoted(out, node->name);
    else
      strbuf_add(out, node->name);
  }
  if (node->text) {
    strbuf_add_char(out, ' ');
    strbuf_add_quoted(out, node->text);
  }
  if (node->kind == AST_NUMBER) {
    strbuf_add_char(out, ' ');
    if (node->is_integer)
      strbuf_printf(out, "%lld", (long long)node->integer);
    else
      number_add(out, node->number);
  }
  if (node->flag) strbuf_add(out, node->kind == AST_LAYER ? " model" : node->kind == AST_FN ? "" : " (bracketed)");
}

/* Levels that are shown by indentation. Deeper nodes carry the number of their level instead; otherwise a chain of n
 * nodes would print n * n blanks. */
enum { DEEPEST_INDENT = 60 };

static void add_indent(StrBuf *out, unsigned level) {
  if (level <= DEEPEST_INDENT)
    strbuf_printf(out, "%*s", (int)(2 * level), "");
  else
    strbuf_printf(out, "%*s[%u] ", 2 * DEEPEST_INDENT, "", level);
}

static void dump_node(StrBuf *out, Arena *arena, const Ast *node, unsigned indent) {
  add_indent(out, indent);
  if (!node) {
    strbuf_add(out, "-\n");
    return;
  }
  strbuf_add(out, kind_texts[node->kind]);
  dump_attributes(out, node);
  SrcPlace place = {0, 0};
  if (node->span.source) place = source_place(node->span.source, node->span.begin);
  strbuf_printf(out, "  # %u:%u\n", place.line, place.column);
  for (uint32_t i = 0; i < node->n_children; i++) dump_node(out, arena, node->children[i], indent + 1);
}

void ast_dump(StrBuf *out, Arena *arena, const Ast *node) { dump_node(out, arena, node, 0); }

/* Errors of one parse, and the nodes that the grammar's actions make.
 *
 * In: kind, span and children of a node. Out: a tree whose nodes know their depth. Refuses trees deeper than
 * AST_MAX_DEPTH and more than PARSE_MAX_NODES nodes: the parser stops then, and the node that it was making is still
 * valid, so the grammar's action need not check. */
#include "parse/parser.h"

#include <stdarg.h>
#include <string.h>

// ---- errors of one parse ----

static void add_error(Parser *parser, SrcSpan span, DiagCode code, const char *format, va_list args)
    __attribute__((format(printf, 4, 0)));

static void add_error(Parser *parser, SrcSpan span, DiagCode code, const char *format, va_list args) {
  if (parser->is_stopped || parser->is_skipping) return;
  diag_error(parser->diag, span, code, "%s", arena_vprintf(parser->arena, format, args));
  if (parser->diag->n_errors > DIAG_MAX_ERRORS) parser->is_stopped = true;
}

void parser_error(Parser *parser, SrcSpan span, DiagCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add_error(parser, span, code, format, args);
  va_end(args);
}

void parser_stop(Parser *parser, SrcSpan span, DiagCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add_error(parser, span, code, format, args);
  va_end(args);
  parser->is_stopped = true;
}

// ---- nodes ----

static uint32_t depth_of(Ast *const *children, size_t n) {
  uint32_t deepest = 0;
  for (size_t i = 0; i < n; i++)
    if (children[i] && children[i]->depth > deepest) deepest = children[i]->depth;
  return deepest + 1;
}

/* Makes the node and takes over `children`, which must lie in the arena. Depth is known from the children, so the
 * limit costs no walk. */
static Ast *node_around(Parser *parser, AstKind kind, SrcSpan span, const char *name, Ast **children, size_t n) {
  Ast *node = ARENA_NEW(parser->arena, Ast);
  node->kind = kind;
  node->span = span;
  node->name = name;
  node->children = children;
  node->n_children = (uint32_t)n;
  node->depth = depth_of(children, n);
  if (node->depth > AST_MAX_DEPTH)
    parser_stop(parser, span, DIAG_NESTING, "too complex: more than %d operations are nested in one another",
                AST_MAX_DEPTH);
  if (++parser->n_nodes > PARSE_MAX_NODES)
    parser_stop(parser, span, DIAG_TOO_LONG, "the file has more than %d names, numbers and operations",
                PARSE_MAX_NODES);
  return node;
}

Ast *node_new(Parser *parser, AstKind kind, SrcSpan span, const char *name, Ast *const *children, size_t n) {
  Ast **copy = n ? arena_copy(parser->arena, children, n * sizeof *children) : NULL;
  return node_around(parser, kind, span, name, copy, n);
}

Ast *node_of_list(Parser *parser, AstKind kind, SrcSpan span, const char *name, Ast *first, const AstList *list) {
  if (!first) return node_around(parser, kind, span, name, list->nodes.items, list->nodes.n);
  Ast **children = ARENA_ARRAY(parser->arena, Ast *, list->nodes.n + 1);
  children[0] = first;
  for (size_t i = 0; i < list->nodes.n; i++) children[i + 1] = list->nodes.items[i];
  return node_around(parser, kind, span, name, children, list->nodes.n + 1);
}

/* Lists grow while the grammar reduces; the node that takes one over takes its memory too. */
AstList *list_new(Parser *parser) { return ARENA_NEW(parser->arena, AstList); }

AstList *list_add(Parser *parser, AstList *list, Ast *node) {
  if (node) vec_push(parser->arena, &list->nodes, node);
  return list;
}

/* An argument by position after one by name would leave its parameter to guesswork. */
AstList *list_add_argument(Parser *parser, AstList *list, Ast *argument) {
  const Ast *before = list->nodes.n ? list->nodes.items[list->nodes.n - 1] : NULL;
  if (before && before->name && !argument->name)
    parser_error(parser, argument->span, DIAG_SYNTAX, "a positional argument after '%s', which is given by name",
                 before->name);
  return list_add(parser, list, argument);
}

void check_choice(Parser *parser, const Ast *condition) {
  if (!condition || ast_is_in(condition)) return;
  parser_error(parser, condition->span, DIAG_SYNTAX,
               "a text that says what is wrong must follow: require ..., \"text\" "
               "(only of `x in [...]` it may be left out)");
}

const char *intern(Parser *parser, const char *text) { return map_intern(parser->names, text, strlen(text)); }

SrcSpan span_join(SrcSpan first, SrcSpan last) { return (SrcSpan){first.source, first.begin, last.end}; }

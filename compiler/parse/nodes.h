/* Nodes: what the actions of the grammar build trees with. Inside parse only.
 *
 * In: kind, span, children. Out: nodes in the arena, with their depth. Refuses trees deeper than AST_MAX_DEPTH and
 * more than PARSE_MAX_NODES nodes: then the parser is stopped, and the node is still valid. */
#ifndef TFM_PARSE_NODES_H
#define TFM_PARSE_NODES_H

#include "base/vec.h"
#include "parse/parser.h"

typedef struct AstList {
  VEC(Ast *) nodes;
} AstList;

/* The children of a node_new, at least one; any of them may be NULL. */
#define CHILDREN(...) (Ast *[]){__VA_ARGS__}, sizeof((Ast *[]){__VA_ARGS__}) / sizeof(Ast *)
#define NO_CHILDREN NULL, 0

Ast *node_new(Parser *parser, AstKind kind, SrcSpan span, const char *name, Ast *const *children, size_t n);
/* A node whose children are `first` (left out if NULL) and the list's. */
Ast *node_of_list(Parser *parser, AstKind kind, SrcSpan span, const char *name, Ast *first, const AstList *list);

AstList *list_new(Parser *parser);
/* Adds a node and returns the list; NULL, what stands for a fault, is left out. */
AstList *list_add(Parser *parser, AstList *list, Ast *node);
/* The same for arguments of a call: none by place may follow one by name. */
AstList *list_add_argument(Parser *parser, AstList *list, Ast *argument);

/* The one copy of a text among the names. */
const char *intern(Parser *parser, const char *text);

/* From the begin of one span to the end of another. */
SrcSpan span_join(SrcSpan first, SrcSpan last);

#endif

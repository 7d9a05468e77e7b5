/* The words of a graph's text form, and its nodes. Private to read.c.
 *
 * In: a reader, which stands before a word. Out: what the word means; the reader stands behind it. Refused with line
 * and column: the first thing that is not what the grammar expects. False or NULL then. */
#ifndef TFM_GRAPH_READ_WORDS_H
#define TFM_GRAPH_READ_WORDS_H

#include "graph/graph.h"

typedef struct GraphReader {
  Arena *arena;
  Diag *diag;
  Source *source;
  const char *text; /* what is still to be read of source->text */
  Graph *graph;
  Map nodes; /* number in the text -> Node * */
} GraphReader;

/* Reports that something else was expected here, and returns false. The first error ends the reading. */
__attribute__((format(printf, 2, 3))) bool graph_read_fault(GraphReader *r, const char *format, ...);
bool graph_read_expect(GraphReader *r, char c);
/* A plain name or a quoted string; NULL after an error. */
const char *graph_read_name(GraphReader *r, const char *what);
const Size *graph_read_size(GraphReader *r);
/* "[a, b]": at most MAX_RANK sizes. */
bool graph_read_sizes(GraphReader *r, uint32_t *n, const Size **sizes);
/* "as cache 0", or nothing. */
bool graph_read_role(GraphReader *r, Role *role);
/* "%3", a node that an earlier line defined. */
Node *graph_read_operand(GraphReader *r);
/* A node in the order of the text: number, operation, operands and attributes in any order, type. */
bool graph_read_node(GraphReader *r);

#endif

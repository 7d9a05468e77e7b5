/* GraphReader: what the files that read the text form of graphs share. Nothing outside of graph/ needs it. */
#ifndef TFM_GRAPH_GRAPH_READER_H
#define TFM_GRAPH_GRAPH_READER_H

#include "graph/attributes.h"
#include "graph/scan.h"

typedef struct GraphReader {
  Arena *arena;
  Diag *diag;
  Source *source;
  const char *text; /* the place in source->text */
  Graph *graph;
  Map nodes; /* the number that stands in the text -> Node * */
} GraphReader;

/* Reports that something else was expected at the place; returns false. The first error ends the reading. */
bool read_fault(GraphReader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool read_expect(GraphReader *r, char c);
const char *read_name(GraphReader *r, const char *what); /* a name or a string; NULL after an error */
const Size *read_size(GraphReader *r);
/* "[a, b]" of at most MAX_RANK sizes. */
bool read_sizes(GraphReader *r, uint32_t *n, const Size **sizes);
Node *read_operand(GraphReader *r); /* "%3", which was defined before */

bool read_node(GraphReader *r);    /* read_node.c: "%2 = gather %1, %0 : f32[batch, 8]" */
bool read_check(GraphReader *r);   /* read_check.c: what follows "check" */

#endif

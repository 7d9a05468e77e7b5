/* Notes of a graph, for people: the modules that it was made of, and who is told of what changes. In: what the
 * elaborator and the passes say. Out: what `tfmc explore` shows. Nothing that is computed depends on them. */
#ifndef TFM_GRAPH_NOTES_H
#define TFM_GRAPH_NOTES_H

#include "base/vec.h"
#include "diag/source.h"

typedef struct Node Node;

/* A module that was made: its layer, where that stands, and its config values as text. */
typedef struct GraphModule {
  const char *path, *layer;
  SrcSpan span;
  uint32_t n_config;
  const char *const *config; /* name, value, name, value ... */
} GraphModule;

typedef struct GraphWatch { /* is told when one node takes the place of another */
  void *context;
  void (*replaced)(void *context, const Node *node, const Node *by);
} GraphWatch;

typedef struct GraphNotes {
  VEC(GraphModule) modules; /* in the order in which they were made */
  const GraphWatch *watch;  /* NULL: nobody */
} GraphNotes;

#endif

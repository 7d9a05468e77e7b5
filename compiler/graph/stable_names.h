/* StableNames: names for the nodes of a graph that stay while passes change it.
 *
 * In: graphs as passes leave them. Out: for each node a name of the module and the variable or operation that it is of,
 * "layers.0.attn.q", with a number behind it from the second one of a name on. A node keeps the name that it got when
 * it was first seen, and no other gets it, so texts of before and after differ where the graph does. The same passes
 * over the same model give the same names. Nodes are known by their address: they must not be freed meanwhile. */
#ifndef TFM_GRAPH_STABLE_NAMES_H
#define TFM_GRAPH_STABLE_NAMES_H

#include "graph/graph.h"

typedef struct StableNames {
  Arena *arena;
  Map by_node; /* address -> name */
  Map taken;   /* name -> how many were made of it */
} StableNames;

StableNames *stable_names_new(Arena *arena);
/* Names the nodes that have no name yet, in their order. */
void stable_names_note(StableNames *names, const Graph *graph);
const char *stable_name(const StableNames *names, const Node *node);
/* As graph_print does, with these names in place of numbers; not for graph_read. Nodes without one are noted. */
void graph_print_with_names(StrBuf *out, Graph *graph, StableNames *names);
/* "layers.3.self_attn" -> "layers.*.self_attn" */
const char *path_without_numbers(Arena *arena, const char *path);

#endif

/* Tracks: what became of each operation of a graph while the passes ran.
 *
 * * In: a graph before its passes, and what the observer of the passes sees. Out: for each node after them, the
 * operations as they were written that it computes; for each pass, which operations went and came. An operation that
 * went belongs to the one that took its place, or else to those that used its result. */
#ifndef TFM_EXPLORE_TRACKS_H
#define TFM_EXPLORE_TRACKS_H

#include "passes/passes.h"

typedef struct TrackIds {
  VEC(uint32_t) items; /* ascending, each once */
} TrackIds;

typedef struct TrackedNode { /* as it was when it went or came */
  const char *op, *path, *text;
  Origin origin;
  const Node *node; /* never freed while the passes run */
} TrackedNode;

typedef struct TrackedPass {
  const char *name;
  bool changed;
  double seconds;
  VEC(TrackedNode) gone, came;
} TrackedPass;

typedef struct Tracks {
  Arena *arena;
  Graph *graph;
  Map sources; /* node (its address) -> TrackIds * */
  VEC(TrackedPass) passes;
  Map replaced; /* node -> node that took its place, of the pass that runs */
  VEC(const Node *) before; /* in order, when the pass began */
  Map places;   /* of those */
  VEC(const Node *) *users;
  GraphWatch watch;
  PassObserver observer;
} Tracks;

/* The ids of the graph must be dense: they name the operations as they were written. */
Tracks *tracks_new(Arena *arena, Graph *graph);
/* NULL: nothing that was written is computed there. */
const TrackIds *tracks_of(const Tracks *tracks, const Node *node);

#endif

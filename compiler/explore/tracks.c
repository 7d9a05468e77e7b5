/* In: what the passes do. Out: where operations went. See tracks.h.
 *
 * Before each pass the list of nodes and their users are noted; after it, nodes that were deleted are followed to where
 * their work is done now, and what they stood for is added there. */
#include "explore/tracks.h"

static void *find(const Map *map, const Node *node) {
  const MapEntry *entry = map_find(map, &node, sizeof node);
  return entry ? entry->value : NULL;
}

static bool computes(const Node *node) {
  return node->op != OP_INPUT && node->op != OP_WEIGHT && node->op != OP_FULL && node->op != OP_SIZE;
}

const TrackIds *tracks_of(const Tracks *tracks, const Node *node) { return find(&tracks->sources, node); }

// ---- sets of operations ----

static void add_id(Arena *arena, TrackIds *to, uint32_t id) {
  size_t at = to->items.n;
  while (at > 0 && to->items.items[at - 1] > id) at--;
  if (at > 0 && to->items.items[at - 1] == id) return;
  vec_push(arena, &to->items, id);
  for (size_t i = to->items.n - 1; i > at; i--) to->items.items[i] = to->items.items[i - 1];
  to->items.items[at] = id;
}

static void give(Tracks *tracks, const Node *to, const TrackIds *ids) {
  TrackIds *known = find(&tracks->sources, to);
  if (!known) {
    known = ARENA_NEW(tracks->arena, TrackIds);
    map_put_n(&tracks->sources, &to, sizeof to, known);
  }
  for (size_t i = 0; ids && i < ids->items.n; i++) add_id(tracks->arena, known, ids->items.items[i]);
}

// ---- before a pass ----

static TrackedNode described(const Tracks *tracks, const Node *node) {
  StrBuf text = strbuf_new(tracks->arena);
  strbuf_printf(&text, "%s", op_table[node->op].name);
  if (node->attr.expr) {
    strbuf_add_char(&text, ' ');
    expr_print(&text, tracks->graph->sizes, node->attr.expr);
  }
  strbuf_add(&text, " : ");
  node_print_shape(&text, tracks->graph->sizes, node);
  return (TrackedNode){op_table[node->op].name, node->origin.path, text.text, node->origin, node};
}

static void before_pass(void *context, Graph *graph, const char *pass) {
  Tracks *tracks = context;
  tracks->graph = graph;
  graph->notes.watch = &tracks->watch;
  tracks->replaced = map_new(tracks->arena);
  tracks->places = map_new(tracks->arena);
  tracks->before.n = 0;
  vec_push(tracks->arena, &tracks->passes, (TrackedPass){.name = pass});
  for (const Node *node = graph->first; node; node = node->next) {
    map_put_n(&tracks->places, &node, sizeof node, (void *)(uintptr_t)(tracks->before.n + 1));
    vec_push(tracks->arena, &tracks->before, node);
  }
  tracks->users = arena_array(tracks->arena, tracks->before.n + 1, sizeof *tracks->users);
  for (size_t i = 0; i < tracks->before.n; i++) {
    const Node *node = tracks->before.items[i];
    for (size_t k = 0; k < node->users.n; k++) vec_push(tracks->arena, &tracks->users[i], node->users.items[k]);
  }
}

static void note_replaced(void *context, const Node *node, const Node *by) {
  Tracks *tracks = context;
  map_put_n(&tracks->replaced, &node, sizeof node, (void *)(uintptr_t)by);
}

// ---- after it ----

typedef struct Ends { /* of what went: where its work is done now */
  VEC(const Node *) nodes;
} Ends;

static void add_end(Tracks *tracks, Ends *ends, const Node *node) {
  for (size_t i = 0; i < ends->nodes.n; i++)
    if (ends->nodes.items[i] == node) return;
  vec_push(tracks->arena, &ends->nodes, node);
}

/* What took the place of a node: past views that came with it, since these show what another computes. */
static const Node *successor(const Tracks *tracks, const Node *node) {
  const Node *by = find(&tracks->replaced, node);
  for (int i = 0; by && by->deleted && i < 1000; i++) by = find(&tracks->replaced, by);
  if (!by || by->deleted) return NULL;
  while (op_table[by->op].category == CATEGORY_VIEW && !find(&tracks->places, by)) by = by->inputs.items[0];
  return by;
}

static void find_ends(Tracks *tracks, const Ends *all, size_t place, Ends *ends) {
  const Node *by = successor(tracks, tracks->before.items[place]);
  if (by) {
    add_end(tracks, ends, by);
    return;
  }
  for (size_t i = 0; i < tracks->users[place].n; i++) {
    const Node *user = tracks->users[place].items[i];
    const size_t of_user = (size_t)(uintptr_t)find(&tracks->places, user);
    if (!user->deleted) add_end(tracks, ends, user);
    else if (of_user)
      for (size_t k = 0; k < all[of_user - 1].nodes.n; k++) add_end(tracks, ends, all[of_user - 1].nodes.items[k]);
  }
}

static void note_new(Tracks *tracks, Graph *graph, TrackedPass *pass) {
  for (const Node *node = graph->first; node; node = node->next) {
    if (find(&tracks->places, node) || !computes(node)) continue;
    vec_push(tracks->arena, &pass->came, described(tracks, node));
  }
}

static void after_pass(void *context, Graph *graph, bool changed, double seconds) {
  Tracks *tracks = context;
  TrackedPass *pass = &tracks->passes.items[tracks->passes.n - 1];
  graph->notes.watch = NULL;
  pass->changed = changed;
  pass->seconds = seconds;
  if (!changed) return;
  Ends *ends = arena_array(tracks->arena, tracks->before.n + 1, sizeof *ends);
  for (size_t i = tracks->before.n; i-- > 0;) {
    const Node *node = tracks->before.items[i];
    if (!node->deleted) continue;
    find_ends(tracks, ends, i, &ends[i]);
    for (size_t k = 0; k < ends[i].nodes.n; k++) give(tracks, ends[i].nodes.items[k], tracks_of(tracks, node));
  }
  for (size_t i = 0; i < tracks->before.n; i++)
    if (tracks->before.items[i]->deleted && computes(tracks->before.items[i]))
      vec_push(tracks->arena, &pass->gone, described(tracks, tracks->before.items[i]));
  note_new(tracks, graph, pass);
}

Tracks *tracks_new(Arena *arena, Graph *graph) {
  Tracks *tracks = ARENA_NEW(arena, Tracks);
  *tracks = (Tracks){.arena = arena, .graph = graph, .sources = map_new(arena)};
  tracks->watch = (GraphWatch){tracks, note_replaced};
  tracks->observer = (PassObserver){tracks, before_pass, after_pass};
  for (const Node *node = graph->first; node; node = node->next) {
    TrackIds *own = ARENA_NEW(arena, TrackIds);
    if (computes(node)) vec_push(arena, &own->items, node->id);
    map_put_n(&tracks->sources, &node, sizeof node, own);
  }
  return tracks;
}

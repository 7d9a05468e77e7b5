/* Where an objective is cut below what mixes items. See item_cut.h.
 *
 * The walk goes from the results down through everything that mixes, and stops at values of one item each and at sums.
 * What no item reaches belongs to the mixture too and is computed there again: weights, masks of dropout, positions. */
#include "train/item_cut.h"

#include "train/weight_inputs.h"

#include "graph/attributes.h"
#include "graph/build.h"

typedef struct Finder {
  CutRequest request;
  ItemCut *cut;
  Map seen, cuts; /* Node * */
  VEC(Node *) waiting;
} Finder;

static Arena *arena_of(const Finder *f) { return f->request.kinds->graph->arena; }

// ---- sizes ----

static uint64_t symbols_of(const Size *const *sizes, size_t n) {
  uint64_t all = 0;
  for (size_t i = 0; i < n; i++)
    for (uint32_t k = 0; sizes[i] && k < sizes[i]->table->n_symbols; k++)
      all |= (uint64_t)size_involves(sizes[i], k) << k;
  return all;
}

// ---- what gradients flow to ----

static bool is_trained(const Finder *f, const Node *node) {
  return node->op == OP_WEIGHT && objective_trains(f->request.objective, node->attr.name);
}

/* As differentiate has it: through values in f32 that nothing stops. */
static void mark_gradients(Finder *f) {
  Map active = map_new(arena_of(f));
  for (const Node *node = f->request.kinds->graph->first; node; node = node->next) {
    if (node->dtype != DTYPE_F32 || map_find(f->request.stopped, &node, sizeof node)) continue;
    bool is_active = is_trained(f, node);
    for (size_t i = 0; i < node->inputs.n && !is_active; i++)
      is_active = map_find(&active, &node->inputs.items[i], sizeof(Node *)) != NULL;
    if (is_active) map_put_n(&active, &node, sizeof node, NULL);
  }
  for (size_t i = 0; i < f->cut->values.n; i++) {
    CutValue *value = &f->cut->values.items[i];
    value->has_gradient = map_find(&active, &value->node, sizeof(Node *)) != NULL;
  }
}

// ---- the walk ----

const Size *item_cut_counts(const CutValue *value) {
  return value->node->op == OP_SIZE && value->node->dtype == DTYPE_F32 ? value->node->attr.size : NULL;
}

static void add(Finder *f, CutValue value) {
  const Node *key = value.node;
  if (map_find(&f->cuts, &key, sizeof key)) return;
  map_put_n(&f->cuts, &key, sizeof key, NULL);
  vec_push(arena_of(f), &f->cut->values, value);
}

/* A mean over items: their sum, and how many places it is over. */
static void add_average(Finder *f, Node *node, const Size *over) {
  Builder builder = {.graph = f->request.kinds->graph, .origin = node->origin};
  size_t i = 0;
  while (i < f->cut->values.n && item_cut_counts(&f->cut->values.items[i]) != over) i++;
  Node *size = i < f->cut->values.n ? f->cut->values.items[i].node : build_size(&builder, DTYPE_F32, over);
  Node *sum = build_binary(&builder, OP_MUL, node, size);
  add(f, (CutValue){.node = sum, .of = node, .axis = -1, .average = over});
  add(f, (CutValue){.node = size, .of = size, .axis = -1});
}

static bool is_mask(const Finder *f, const Node *node) {
  const Objective *objective = f->request.objective;
  for (size_t i = 0; i < objective->masks.n; i++)
    if (objective->masks.items[i].input == node) return true;
  return false;
}

static void go_on_below(Finder *f, const Node *node) {
  for (size_t i = 0; i < node->inputs.n; i++) vec_push(arena_of(f), &f->waiting, node->inputs.items[i]);
}

static void visit(Finder *f, Node *node) {
  const ItemKind kind = item_kind(f->request.kinds, node);
  if (node->op == OP_FULL || is_mask(f, node)) return;
  if (node->op == OP_INPUT && kind.name != ITEMS_EACH)
    f->cut->where = node;
  else if (kind.name == ITEMS_EACH)
    add(f, (CutValue){.node = node, .of = node, .axis = (int32_t)kind.axis});
  else if (kind.name == ITEMS_TOTAL)
    add(f, (CutValue){.node = node, .of = node, .axis = -1});
  else if (kind.name == ITEMS_AVERAGE)
    add_average(f, node, kind.over);
  else
    go_on_below(f, node);
}

bool item_cut_find(const CutRequest *request, const GraphOutput *results, size_t n, ItemCut *cut) {
  Arena *arena = request->kinds->graph->arena;
  Finder f = {.request = *request, .cut = cut, .seen = map_new(arena), .cuts = map_new(arena)};
  *cut = (ItemCut){0};
  if (request->kinds->batch < 0 || request->kinds->batch >= 64) return false;
  for (size_t i = 0; i < n; i++) vec_push(arena, &f.waiting, results[i].node);
  while (f.waiting.n && !cut->where) {
    Node *node = f.waiting.items[--f.waiting.n];
    if (map_find(&f.seen, &node, sizeof node)) continue;
    map_put_n(&f.seen, &node, sizeof node, NULL);
    visit(&f, node);
  }
  mark_gradients(&f);
  return !cut->where;
}

// ---- sizes of a graph ----

static uint64_t symbols_of_attributes(const Node *node) {
  uint64_t all = 0;
  for (Attribute i = 0; i < N_ATTRIBUTES; i++) {
    const Size *const *sizes = attribute_value(&node->attr, i);
    const AttributeType type = attribute_type(i);
    if (type == ATTRIBUTE_IS_SIZE) all |= symbols_of(sizes, 1);
    if (type == ATTRIBUTE_IS_STARTS || type == ATTRIBUTE_IS_SHAPE) all |= symbols_of(sizes, MAX_RANK);
  }
  return all;
}

uint64_t graph_sizes(const Graph *graph, int32_t batch) {
  uint64_t all = 0;
  for (const Node *node = graph->first; node; node = node->next)
    all |= symbols_of((const Size *const *)node->dims, node->rank) | symbols_of_attributes(node);
  return all & ~((uint64_t)1 << batch);
}

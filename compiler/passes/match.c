/* In: nodes. Out: answers about constants, shapes and uses; views without chains; nodes replaced, deleted and sorted.
 * See match.h. Nothing is refused: a question whose answer is not certain is answered with no. */
#include "passes/match.h"

#include <string.h>

// ---- constants ----

bool match_number(const Node *node, double *number) {
  const Node *full = node_behind_views(node);
  if (full->op != OP_FULL || full->dtype != DTYPE_F32) return false;
  *number = full->attr.number;
  return true;
}

bool match_integer(const Node *node, int64_t *integer) {
  const Node *full = node_behind_views(node);
  if (full->op != OP_FULL || full->dtype == DTYPE_F32) return false;
  *integer = full->attr.integer;
  return true;
}

// ---- what is computed before any run ----

enum { UNKNOWN, IS_STATIC, IS_DYNAMIC };

static void remember_all(Pass *pass) {
  const bool *flags = graph_static_flags(pass->scratch, pass->graph);
  for (uint32_t i = 0; i < pass->graph->next_id; i++)
    vec_push(pass->scratch, &pass->is_static, flags[i] ? IS_STATIC : IS_DYNAMIC);
}

/* The flags of all nodes are computed once for a pass. Nodes that were added since are asked one by one; their inputs
 * are known, or were added just before, so the recursion is shallow. */
bool match_is_static(Pass *pass, const Node *node) {
  if (!pass->is_static.n) remember_all(pass);
  while (pass->is_static.n <= node->id) vec_push(pass->scratch, &pass->is_static, UNKNOWN);
  if (pass->is_static.items[node->id] != UNKNOWN) return pass->is_static.items[node->id] == IS_STATIC;
  bool is_static = true;
  for (size_t i = 0; i < node->inputs.n && is_static; i++)
    is_static = match_is_static(pass, node->inputs.items[i]);
  is_static = is_static && node_is_static(node);
  pass->is_static.items[node->id] = is_static ? IS_STATIC : IS_DYNAMIC;
  return is_static;
}

// ---- shapes ----

/* Aligned at the last axis, with axes of 1 where the domain has them and nowhere else. */
bool match_fills(const Node *node, uint32_t rank, const Size *const *dims) {
  if (node->rank > rank) return false;
  for (uint32_t i = 0; i < rank; i++) {
    const Size *domain = dims[rank - 1 - i];
    bool one = i >= node->rank || dim_is_one(dim_from_end(node, i));
    if (one != dim_is_one(domain)) return false;
  }
  return true;
}

// ---- uses ----

bool match_has_gradients(const Graph *graph) {
  for (size_t i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.items[i].role.kind == ROLE_GRADIENT) return true;
  return false;
}

uint32_t match_end_of_forward(const Graph *graph) {
  uint32_t end = 0;
  for (size_t i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.items[i];
    if (output->role.kind != ROLE_GRADIENT && output->node->id > end) end = output->node->id;
  }
  return match_has_gradients(graph) ? end : 0;
}

Node *match_only_user(const Pass *pass, const Node *node) {
  if (!node->users.n || graph_is_output(pass->graph, node)) return NULL;
  for (size_t i = 1; i < node->users.n; i++)
    if (node->users.items[i] != node->users.items[0]) return NULL;
  return node->users.items[0];
}

bool match_depends(Pass *pass, const Node *node, const Node *from) {
  VEC(const Node *) pending = {0};
  bool *seen = ARENA_ARRAY(pass->scratch, bool, pass->graph->next_id);
  vec_push(pass->scratch, &pending, node);
  while (pending.n) {
    const Node *next = pending.items[--pending.n];
    if (next == from) return true;
    if (seen[next->id]) continue;
    seen[next->id] = true;
    for (size_t i = 0; i < next->inputs.n; i++) vec_push(pass->scratch, &pending, next->inputs.items[i]);
  }
  return false;
}

bool match_sibling_paths(const char *a, const char *b) {
  if (!strcmp(a, b)) return true;
  const char *dot_a = strrchr(a, '.'), *dot_b = strrchr(b, '.');
  size_t parent_a = dot_a ? (size_t)(dot_a - a) : 0, parent_b = dot_b ? (size_t)(dot_b - b) : 0;
  return parent_a == parent_b && !strncmp(a, b, parent_a);
}

// ---- rewriting ----

static bool same_dims(const Node *x, uint32_t rank, const Size *const *dims) {
  return x->rank == rank && !memcmp(x->dims, dims, rank * sizeof *dims);
}

/* The last reshape alone decides the shape, so a chain collapses; a constant is simply made in the new shape. */
Node *match_reshape(Builder *b, Node *x, uint32_t rank, const Size *const *dims) {
  while (x->op == OP_RESHAPE && !same_dims(x, rank, dims)) x = x->inputs.items[0];
  if (same_dims(x, rank, dims)) return x;
  if (x->op == OP_FULL && x->dtype == DTYPE_F32) return build_full(b, x->attr.number, rank, dims);
  return build_reshape(b, x, rank, dims);
}

/* axis i of the result is axis composed[i] of what the chain began with. */
Node *match_permute(Builder *b, Node *x, const uint8_t *axes) {
  uint8_t composed[MAX_RANK];
  memcpy(composed, axes, x->rank);
  while (x->op == OP_PERMUTE) {
    for (uint32_t i = 0; i < x->rank; i++) composed[i] = x->attr.axes[composed[i]];
    x = x->inputs.items[0];
  }
  bool identity = true;
  for (uint32_t i = 0; i < x->rank; i++) identity &= composed[i] == i;
  return identity ? x : build_permute(b, x, composed);
}

Node *match_swap_last_two(Builder *b, Node *x) {
  uint8_t axes[MAX_RANK];
  for (uint32_t i = 0; i < x->rank; i++) axes[i] = (uint8_t)i;
  axes[x->rank - 1] = (uint8_t)(x->rank - 2);
  axes[x->rank - 2] = (uint8_t)(x->rank - 1);
  return match_permute(b, x, axes);
}

Node *match_slice(Builder *b, Node *x, uint32_t axis, int64_t start, int64_t n) {
  SizeTable *sizes = b->graph->sizes;
  const Size *starts[MAX_RANK], *dims[MAX_RANK];
  for (uint32_t i = 0; i < x->rank; i++) {
    starts[i] = size_const(sizes, 0);
    dims[i] = x->dims[i];
  }
  if (!start && size_equals(dims[axis], n)) return x;
  starts[axis] = size_const(sizes, start);
  dims[axis] = size_const(sizes, n);
  return build_slice(b, x, starts, dims);
}

void match_delete_unused(Pass *pass, Node *node) {
  VEC(Node *) pending = {0};
  vec_push(pass->scratch, &pending, node);
  while (pending.n) {
    Node *next = pending.items[--pending.n];
    if (next->deleted || next->op == OP_INPUT || next->users.n || graph_is_output(pass->graph, next)) continue;
    for (size_t i = 0; i < next->inputs.n; i++) vec_push(pass->scratch, &pending, next->inputs.items[i]);
    graph_delete(pass->graph, next);
  }
}

void match_replace(Pass *pass, Node *node, Node *by) {
  graph_replace_uses(pass->graph, node, by);
  match_delete_unused(pass, node);
}

// ---- order ----

/* The first input that has no place yet; NULL: the node may be placed. */
static Node *missing_input(const Node *node, const bool *placed) {
  for (size_t i = 0; i < node->inputs.n; i++)
    if (!placed[node->inputs.items[i]->id]) return node->inputs.items[i];
  return NULL;
}

/* A depth-first walk with a stack of its own: a chain of operations may be longer than the C stack is deep. */
void match_sort(Pass *pass) {
  bool *placed = ARENA_ARRAY(pass->scratch, bool, pass->graph->next_id);
  VEC(Node *) pending = {0};
  for (Node *node = pass->graph->first; node; node = node->next) {
    if (placed[node->id]) continue;
    vec_push(pass->scratch, &pending, node);
    while (pending.n) {
      Node *top = pending.items[pending.n - 1];
      Node *missing = missing_input(top, placed);
      if (missing) {
        vec_push(pass->scratch, &pending, missing);
        continue;
      }
      if (top != node && !placed[top->id]) graph_move_before(pass->graph, top, node);
      placed[top->id] = true;
      pending.n--;
    }
  }
}

// ---- regions of weights ----

static bool is_view(const Node *node) { return op_table[node->op].category == CATEGORY_VIEW; }

/* A weight and its views have sizes that are known, so size_is_const cannot fail. */
static WeightRegion whole(Node *node) {
  WeightRegion region = {.root = node};
  for (uint32_t i = 0; i < node->rank; i++) size_is_const(node->dims[i], &region.to[i]);
  return region;
}

/* The region of the view's operand that a region of the view is. A reshape gives up: all of the operand. */
static WeightRegion behind(const WeightRegion *region) {
  const Node *view = region->root;
  WeightRegion result = whole(view->inputs.items[0]);
  if (view->op == OP_RESHAPE) return result;
  for (uint32_t i = 0; i < view->rank; i++) {
    int64_t start = 0;
    uint32_t axis = view->op == OP_PERMUTE ? view->attr.axes[i] : i;
    if (view->op == OP_SLICE) size_is_const(view->attr.starts[i], &start);
    result.from[axis] = region->from[i] + start;
    result.to[axis] = region->to[i] + start;
  }
  return result;
}

WeightRegion weight_region(Node *node, int64_t from, int64_t to) {
  WeightRegion region = whole(node);
  if (to >= 0) {
    region.from[0] = from;
    region.to[0] = to;
  }
  while (is_view(region.root)) region = behind(&region);
  return region;
}

bool weight_region_equal(const WeightRegion *a, const WeightRegion *b) {
  if (a->root != b->root) return false;
  for (uint32_t i = 0; i < a->root->rank; i++)
    if (a->from[i] != b->from[i] || a->to[i] != b->to[i]) return false;
  return true;
}

/* Two boxes of one tensor overlap exactly if they do along every axis. */
static bool overlap(const WeightRegion *a, const WeightRegion *b) {
  for (uint32_t i = 0; i < a->root->rank; i++)
    if (a->from[i] >= b->to[i] || b->from[i] >= a->to[i]) return false;
  return true;
}

/* Walks all views of the tensor that the region lies in; views of other rows have no say. */
bool weight_uses_agree(Pass *pass, const WeightRegion *region, WeightAgrees *agrees, const void *context) {
  VEC(Node *) views = {0};
  vec_push(pass->scratch, &views, region->root);
  for (size_t i = 0; i < views.n; i++) {
    Node *view = views.items[i];
    WeightRegion seen = weight_region(view, 0, -1);
    if (!overlap(region, &seen)) continue;
    if (graph_is_output(pass->graph, view)) return false;
    for (size_t j = 0; j < view->users.n; j++) {
      Node *user = view->users.items[j];
      if (is_view(user)) vec_push(pass->scratch, &views, user);
      else if (!agrees(context, user, view)) return false;
    }
  }
  return true;
}

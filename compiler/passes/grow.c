/* In: a DAG of nodes and a domain. Out: one expression and its operands, within the limits of grow.h. Nodes are only
 * read; the caller puts the fused node into the graph and deletes what has no users left.
 *
 * Growing keeps the meaning because every leaf broadcasts to the domain exactly as its node broadcast to its user, and
 * a node is taken in only if its elements and those of the domain correspond one to one. */
#include "passes/grow.h"

// ---- what is known from the position alone ----

/* A causal mask is gt(index0, index1), however it was sliced, permuted or broadcast: an expression of EXPR_INDEX.
 * There is none (NULL) if a tensor is involved, or if the operations are not worth repeating for each element. */

/* Shared nodes are visited once per path, so the number of steps bounds both the time and the size of the result. */
enum { INDEX_MAX_STEPS = 48 };

typedef struct Index {
  Graph *graph;
  unsigned steps; /* nodes looked at, shared ones every time */
} Index;

AxisMap axis_map_of(SizeTable *sizes, const Node *node, uint32_t rank, const Size *const *dims) {
  AxisMap map;
  for (uint32_t i = 0; i < node->rank; i++) {
    uint32_t axis = node->rank - 1u - i;
    bool broadcast = axis >= rank || (dim_is_one(node->dims[i]) && !dim_is_one(dims[rank - 1 - axis]));
    map.axes[i] = broadcast || dim_is_one(node->dims[i]) ? -1 : (int8_t)axis;
    map.offsets[i] = size_const(sizes, 0);
  }
  return map;
}

/* The coordinate of a node along one axis: the index of the domain, plus what slices have cut off in front. */
static Expr *coordinate(Graph *graph, const AxisMap *map, uint32_t axis) {
  const Size *offset = map->offsets[axis];
  int64_t constant;
  Expr *known = size_is_const(offset, &constant) ? expr_integer(graph->arena, DTYPE_I32, constant)
                                                 : expr_size(graph->arena, DTYPE_I32, offset);
  if (map->axes[axis] < 0) return known;
  Expr *index = expr_index(graph->arena, (uint32_t)map->axes[axis]);
  if (size_equals(offset, 0)) return index;
  return expr_op(graph->arena, OP_ADD, DTYPE_I32, index, known, NULL);
}

// ---- maps of views ----

static AxisMap map_of_slice(Graph *graph, const Node *node, const AxisMap *map) {
  AxisMap inner = *map;
  for (uint32_t i = 0; i < node->rank; i++)
    inner.offsets[i] = size_add(graph->sizes, map->offsets[i], node->attr.starts[i]);
  return inner;
}

static AxisMap map_of_permute(const Node *node, const AxisMap *map) {
  AxisMap inner;
  for (uint32_t i = 0; i < node->rank; i++) {
    inner.axes[node->attr.axes[i]] = map->axes[i];
    inner.offsets[node->attr.axes[i]] = map->offsets[i];
  }
  return inner;
}

/* A reshape that only adds and removes axes of 1. */
static bool map_of_reshape(Graph *graph, const Node *node, const AxisMap *map, AxisMap *inner) {
  const Node *x = node->inputs.items[0];
  uint32_t from = 0;
  for (uint32_t i = 0; i < x->rank; i++) {
    inner->axes[i] = -1;
    inner->offsets[i] = size_const(graph->sizes, 0);
    if (dim_is_one(x->dims[i])) continue;
    while (from < node->rank && dim_is_one(node->dims[from])) from++;
    if (from == node->rank || node->dims[from] != x->dims[i]) return false;
    inner->axes[i] = map->axes[from];
    inner->offsets[i] = map->offsets[from++];
  }
  while (from < node->rank && dim_is_one(node->dims[from])) from++;
  return from == node->rank;
}

/* An operand aligned at the last axis; where it broadcasts its coordinate is 0. */
static AxisMap map_of_operand(Graph *graph, const Node *node, const Node *x, const AxisMap *map) {
  AxisMap inner;
  for (uint32_t i = 0; i < x->rank; i++) {
    uint32_t outer = node->rank - x->rank + i;
    bool broadcast = dim_is_one(x->dims[i]) && !dim_is_one(node->dims[outer]);
    inner.axes[i] = broadcast ? -1 : map->axes[outer];
    inner.offsets[i] = broadcast ? size_const(graph->sizes, 0) : map->offsets[outer];
  }
  return inner;
}

// ---- the expression ----

static Expr *index_expr(Index *in, const Node *node, const AxisMap *map);

static Expr *index_leaf(Graph *graph, const Node *node, const AxisMap *map) {
  switch (node->op) {
    case OP_FULL:
      return node->dtype == DTYPE_F32 ? expr_number(graph->arena, node->attr.number)
                                      : expr_integer(graph->arena, node->dtype, node->attr.integer);
    case OP_SIZE: return expr_size(graph->arena, node->dtype, node->attr.size);
    case OP_POSITIONS: return coordinate(graph, map, 0);
    case OP_CAUSAL_MASK:
      return expr_op(graph->arena, OP_GT, DTYPE_BOOL, coordinate(graph, map, 1), coordinate(graph, map, 0), NULL);
    default: return NULL;
  }
}

static Expr *index_view(Index *in, const Node *node, const AxisMap *map) {
  AxisMap inner;
  if (node->op == OP_SLICE)
    inner = map_of_slice(in->graph, node, map);
  else if (node->op == OP_PERMUTE)
    inner = map_of_permute(node, map);
  else if (!map_of_reshape(in->graph, node, map, &inner))
    return NULL;
  return index_expr(in, node->inputs.items[0], &inner);
}

/* Operations that a run may refuse keep their place, and what is said then. */
static Expr *operation_of(Arena *arena, const Node *node, Expr *const *args) {
  Expr *expr = expr_op(arena, node->op, node->dtype, args[0], args[1], args[2]);
  if (!expr_is_division(expr)) return expr;
  expr->place = origin_place(&node->origin);
  expr->refusal = node->origin.refusal;
  return expr;
}

static bool is_scalar(const Node *node) {
  for (uint32_t i = 0; i < node->rank; i++)
    if (!dim_is_one(node->dims[i])) return false;
  return true;
}

/* Cheap operations are repeated for each element; anything else only if it is one number for all of them. */
static Expr *index_operation(Index *in, const Node *node, const AxisMap *map) {
  if (!op_is_cheap(node->op) && !is_scalar(node)) return NULL;
  Expr *args[3] = {0};
  for (size_t i = 0; i < node->inputs.n; i++) {
    const Node *x = node->inputs.items[i];
    AxisMap inner = map_of_operand(in->graph, node, x, map);
    args[i] = index_expr(in, x, &inner);
    if (!args[i]) return NULL;
  }
  return operation_of(in->graph->arena, node, args);
}

static Expr *index_expr(Index *in, const Node *node, const AxisMap *map) {
  if (++in->steps > INDEX_MAX_STEPS) return NULL;
  if (op_table[node->op].category == CATEGORY_SOURCE) return index_leaf(in->graph, node, map);
  double number;
  if (match_number(node, &number)) return expr_number(in->graph->arena, number);
  if (op_table[node->op].category == CATEGORY_VIEW) return index_view(in, node, map);
  return op_is_pointwise(node->op) ? index_operation(in, node, map) : NULL;
}

Expr *grow_index(Graph *graph, const Node *node, const AxisMap *map) {
  Index in = {.graph = graph};
  return index_expr(&in, node, map);
}

// ---- growing ----

bool grow_has(const Grow *g, const Node *node) {
  for (size_t i = 0; i < g->inside.n; i++)
    if (g->inside.items[i] == node) return true;
  return false;
}

// ---- which nodes are taken in ----

/* Same elements as the domain, and no value that is computed before any run. */
static bool could_be_inside(const Grow *g, const Node *node) {
  return op_is_pointwise(node->op) && match_fills(node, g->rank, g->dims) && !match_is_static(g->pass, node);
}

/* Whether every use lies inside the expression, so that the node need not be in memory. */
static bool used_only_inside(const Grow *g, const Node *node) {
  if (g->may_copy && g->may_copy(g, node)) return true;
  if (graph_is_output(g->pass->graph, node)) return false;
  for (size_t i = 0; i < node->users.n; i++)
    if (!grow_has(g, node->users.items[i])) return false;
  return true;
}

static bool used_only_by(const Grow *g, const Node *node, const Node *user) {
  return !user || match_only_user(g->pass, node) == user || (g->may_copy && g->may_copy(g, node));
}

static bool listed(Node *const *items, size_t n, const Node *node) {
  for (size_t i = 0; i < n; i++)
    if (items[i] == node) return true;
  return false;
}

/* Collects pointwise nodes that the root is computed from, then takes in those whose users are all inside, until
 * nothing changes. The fixed point is needed because a node may be reached before its last user is. */
static void choose_inside(Grow *g, Node *root, uint32_t limit) {
  VEC(Node *) candidates = {0};
  vec_push(g->pass->scratch, &candidates, root);
  for (size_t i = 0; i < candidates.n && candidates.n < limit; i++) {
    Node *node = candidates.items[i];
    for (size_t j = 0; j < node->inputs.n && candidates.n < limit; j++) {
      Node *x = node->inputs.items[j];
      if (x != g->acc && could_be_inside(g, x) && !listed(candidates.items, candidates.n, x))
        vec_push(g->pass->scratch, &candidates, x);
    }
  }
  vec_push(g->pass->scratch, &g->inside, root);
  for (bool grown = true; grown;) {
    grown = false;
    for (size_t i = 1; i < candidates.n; i++) {
      Node *node = candidates.items[i];
      if (grow_has(g, node) || !used_only_inside(g, node)) continue;
      vec_push(g->pass->scratch, &g->inside, node);
      grown = true;
    }
  }
}

// ---- the expression ----

static Expr *grow_node(Grow *g, Node *node);

/* The number of an operand, which is shared by all leaves that read it. */
static uint32_t operand(Grow *g, Node *node) {
  for (size_t i = g->n_fixed; i < g->inputs.n; i++)
    if (g->inputs.items[i] == node) return (uint32_t)i;
  vec_push(g->pass->scratch, &g->inputs, node);
  g->n_leaves++;
  return (uint32_t)g->inputs.n - 1;
}

static Expr *grow_operation(Grow *g, const Node *node) {
  Expr *args[3] = {0};
  for (size_t i = 0; i < node->inputs.n; i++) args[i] = grow_node(g, node->inputs.items[i]);
  g->n_operations++;
  return operation_of(g->pass->graph->arena, node, args);
}

/* The node behind views that only add or drop axes of 1 in front, which broadcasting ignores. */
static Node *without_leading_ones(Node *node) {
  while (node->op == OP_RESHAPE) {
    Node *x = node->inputs.items[0];
    uint32_t least = x->rank < node->rank ? x->rank : node->rank;
    for (uint32_t i = 0; i < node->rank || i < x->rank; i++) {
      if (i < least && dim_from_end(x, i) != dim_from_end(node, i)) return node;
      if (i >= least && !dim_is_one(dim_from_end(x->rank > node->rank ? x : node, i))) return node;
    }
    node = x;
  }
  return node;
}

/* A cheap operation over rows and columns: written out it would cost as much to read. */
static bool worth_recomputing(const Grow *g, const Node *node) {
  bool is_cheap = g->recompute && op_is_pointwise(node->op) && op_is_cheap(node->op);
  return is_cheap && node->rank >= 2 && node->rank <= g->rank &&
         dim_from_end(node, 0) == g->dims[g->rank - 1] && dim_from_end(node, 1) == g->dims[g->rank - 2] &&
         !match_is_static(g->pass, node);
}

/* Rows of a rank-2 table, one per row of the domain. */
static bool is_row_gather(const Grow *g, const Node *node) {
  return node->op == OP_GATHER && node->inputs.items[0]->rank == 2 && g->rank > 0 && node->rank > 0 &&
         node->rank <= g->rank && dim_from_end(node, 0) == g->dims[g->rank - 1] && !match_is_static(g->pass, node);
}

static Expr *grow_gather(Grow *g, const Node *node) {
  uint32_t table = operand(g, node->inputs.items[0]), ids = operand(g, node->inputs.items[1]);
  return expr_gather(g->pass->graph->arena, node->dtype, table, ids);
}

/* A node that is not inside: known from the position, cheap enough to repeat, a gathered row, or an operand. */
static Expr *grow_leaf(Grow *g, Node *node) {
  AxisMap map = axis_map_of(g->pass->graph->sizes, node, g->rank, g->dims);
  Expr *index = grow_index(g->pass->graph, node, &map);
  if (index) {
    if (index->kind != EXPR_CONST) g->n_leaves++;
    g->n_operations += expr_count(index);
    return index;
  }
  Node *plain = without_leading_ones(node);
  if (g->n_operations < GROW_MAX_OPERATIONS && worth_recomputing(g, plain)) return grow_operation(g, plain);
  if (g->gathers && is_row_gather(g, node) && used_only_inside(g, node)) return grow_gather(g, node);
  return expr_input(g->pass->graph->arena, node->dtype, operand(g, node));
}

static Expr *grow_node(Grow *g, Node *node) {
  if (node == g->acc) return expr_acc(g->pass->graph->arena);
  for (size_t i = 0; i < g->memo.n; i++)
    if (g->memo.items[i].node == node) return g->memo.items[i].expr;
  Expr *expr = op_is_pointwise(node->op) && grow_has(g, node) ? grow_operation(g, node) : grow_leaf(g, node);
  vec_push(g->pass->scratch, &g->memo, (GrowMemo){node, expr});
  return expr;
}

/* One attempt, with at most `limit` nodes taken in. */
static Expr *grow_root(Grow *g, Node *root, const Node *user, uint32_t limit) {
  g->inside.n = g->memo.n = 0;
  g->n_leaves = g->n_operations = 0;
  bool whole = used_only_by(g, root, user) && !match_is_static(g->pass, root);
  if (whole && op_is_pointwise(root->op) && (g->operations || !user)) {
    choose_inside(g, root, g->operations ? limit : 1);
    return grow_node(g, root);
  }
  if (whole && is_row_gather(g, root) && (g->gathers || !user)) return grow_gather(g, root);
  return grow_node(g, root);
}

/* Halves what is taken in until operands and operations fit; with a limit of 1 only the root itself is, which always
 * fits. */
Expr *grow_expr(Grow *g, Node *root, const Node *user) {
  g->n_fixed = g->inputs.n;
  bool recompute = g->recompute;
  for (uint32_t limit = GROW_MAX_OPERATIONS;; limit /= 2) {
    g->recompute = recompute && limit > 1;
    Expr *expr = grow_root(g, root, user, limit);
    bool fits = g->n_leaves <= GROW_MAX_OPERANDS && g->n_operations <= 2 * GROW_MAX_OPERATIONS;
    if (fits || limit == 1) {
      g->recompute = recompute;
      return expr;
    }
    g->inputs.n = g->n_fixed;
  }
}

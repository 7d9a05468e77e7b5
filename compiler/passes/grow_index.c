/* What is known from the position alone, as an expression of EXPR_INDEX: a causal mask is gt(index0, index1), however
 * it was sliced, permuted or broadcast.
 *
 * In: a node and how its coordinates come from the domain's. Out: an expression, or NULL: a tensor is involved, or the
 * operations are not worth repeating per element. */
#include "passes/grow.h"

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

static bool is_scalar(const Node *node) {
  for (uint32_t i = 0; i < node->rank; i++)
    if (!dim_is_one(node->dims[i])) return false;
  return true;
}

static Expr *index_operation(Index *in, const Node *node, const AxisMap *map) {
  if (!op_is_cheap(node->op) && !is_scalar(node)) return NULL;
  Expr *args[3] = {0};
  for (size_t i = 0; i < node->inputs.n; i++) {
    const Node *x = node->inputs.items[i];
    AxisMap inner = map_of_operand(in->graph, node, x, map);
    args[i] = index_expr(in, x, &inner);
    if (!args[i]) return NULL;
  }
  return expr_op(in->graph->arena, node->op, node->dtype, args[0], args[1], args[2]);
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

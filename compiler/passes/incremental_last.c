/* In: a model whose scores are those of the last position alone, `head(hidden[:, -1:])`. Out: scores of every position, of
 * which a step takes the last ones itself. The slice is left out, and the axis of 1 that it made is one of the length from
 * there on. Stops where an operation does not keep the rows of that axis apart; then the slice stays. */
#include <string.h>

#include "passes/incremental_parts.h"

typedef struct LastRow { /* what stands for a node: the node is its last row along the axis */
  Node *all; /* NULL: nothing does */
  uint32_t axis;
} LastRow;

typedef struct Widening {
  Cut *cut;
  LastRow *rows; /* by id */
} Widening;

static const LastRow *row_of(const Widening *w, const Node *node, size_t operand) {
  return &w->rows[node->inputs.items[operand]->id];
}

// ---- the slice ----

/* The axis of which the last position is taken; the rank if there is none. */
static uint32_t sliced_axis(const Cut *cut, const Node *node) {
  SizeTable *sizes = cut->graph->sizes;
  const Size *last = size_sub(sizes, cut->length, size_const(sizes, 1));
  for (uint32_t axis = 0; axis < node->rank && node->op == OP_SLICE; axis++)
    if (is_length(cut, node->inputs.items[0]->dims[axis]) && dim_is_one(node->dims[axis]) && node->attr.starts[axis] == last)
      return axis;
  return node->rank;
}

/* The same slice with all positions. */
static LastRow unsliced(const Cut *cut, Node *node, uint32_t axis) {
  Builder b = {.graph = cut->graph, .before = node, .origin = node->origin};
  const Size *starts[MAX_RANK], *dims[MAX_RANK];
  memcpy(starts, node->attr.starts, sizeof starts);
  memcpy(dims, node->dims, sizeof dims);
  starts[axis] = size_const(cut->graph->sizes, 0);
  dims[axis] = cut->length;
  Node *x = node->inputs.items[0];
  return (LastRow){memcmp(dims, x->dims, x->rank * sizeof *dims) ? build_slice(&b, x, starts, dims) : x, axis};
}

// ---- what is made of it ----

static bool keeps_rows(const Widening *w, const Node *node, const Node *wide, uint32_t axis) {
  for (size_t i = 0; i < node->inputs.n; i++) {
    const LastRow *row = row_of(w, node, i);
    if (operand_axis(w->cut, wide, i, axis) != (row->all ? (int32_t)row->axis : -1)) return false;
  }
  return true;
}

static bool uses_last_row(const Widening *w, const Node *node) {
  for (size_t i = 0; i < node->inputs.n; i++)
    if (row_of(w, node, i)->all) return true;
  return false;
}

/* The node on all positions. */
static LastRow widened(const Widening *w, Node *node) {
  Node **operands = ARENA_ARRAY(w->cut->scratch, Node *, node->inputs.n);
  for (size_t i = 0; i < node->inputs.n; i++)
    operands[i] = row_of(w, node, i)->all ? row_of(w, node, i)->all : node->inputs.items[i];
  for (uint32_t axis = 0; axis < node->rank; axis++) {
    if (!dim_is_one(node->dims[axis])) continue;
    Node draft = *node;
    draft.dims[axis] = w->cut->length;
    draft.inputs.items = operands;
    if (!keeps_rows(w, node, &draft, axis)) continue;
    Node *all = graph_add(w->cut->graph, node, node->op, node->dtype, node->rank, (const Size *const *)draft.dims,
                          (uint32_t)node->inputs.n, operands, node->origin);
    all->attr = node->attr;
    return (LastRow){all, axis};
  }
  return (LastRow){0};
}

/* Of the two forms of each node one has no use any more. */
static void delete_unused(Graph *graph) {
  for (Node *node = graph->last, *prev; node; node = prev) {
    prev = node->prev;
    if (!node->users.n && node->op != OP_INPUT && !graph_is_output(graph, node)) graph_delete(graph, node);
  }
}

void widen_last_rows(Cut *cut) {
  graph_renumber(cut->graph);
  const Node *scores = cut->graph->outputs.items[0].node;
  Widening w = {cut, ARENA_ARRAY(cut->scratch, LastRow, cut->graph->next_id)};
  for (Node *node = cut->graph->first; node; node = node->next) { /* new nodes stand before the one looked at */
    uint32_t axis = sliced_axis(cut, node);
    if (axis < node->rank) w.rows[node->id] = unsliced(cut, node, axis);
    else if (uses_last_row(&w, node)) w.rows[node->id] = widened(&w, node);
  }
  const LastRow *row = &w.rows[scores->id];
  if (row->all && row->axis == 1) cut->graph->outputs.items[0].node = row->all;
  delete_unused(cut->graph);
}

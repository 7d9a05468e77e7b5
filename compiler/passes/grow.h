/* Grow: the expression of a fused node, grown from its last operation towards the operands.
 *
 * In: the node whose value is wanted, and the domain over which the fused node computes it. Out: an Expr and the
 * operands it reads. A pointwise producer is taken in if nobody outside the expression uses it and it is computed
 * over the same domain; what is known from the position alone (constants, sizes, positions, causal masks and cheap
 * operations on them) is always taken in, behind views too. Everything else becomes an operand. */
#ifndef TFM_PASSES_GROW_H
#define TFM_PASSES_GROW_H

#include "passes/match.h"

/* Limits that keep one kernel small; what does not fit stays a node of its own. Operands and run-time sizes count,
 * since each takes a register for its address or value. */
enum { GROW_MAX_OPERATIONS = 64, GROW_MAX_OPERANDS = 24 };

typedef struct GrowMemo {
  const Node *node;
  Expr *expr;
} GrowMemo;

typedef struct Grow Grow;
struct Grow {
  Pass *pass;
  uint32_t rank; /* the domain */
  const Size *dims[MAX_RANK];
  const Node *acc;    /* becomes ACC; NULL */
  bool operations;    /* take in pointwise producers */
  bool gathers;       /* take in gathers of rows */
  bool recompute;     /* take in cheap operations over [t, s] though others use them too (attention) */
  bool (*may_copy)(const Grow *g, const Node *node); /* taken in though others use it; NULL: never */
  VEC(Node *) inputs; /* the operands; the fixed inputs of the node stand first: the caller puts them or NULL there */
  /* Private. */
  VEC(const Node *) inside; /* taken in; the first is the root, if it is */
  VEC(GrowMemo) memo;
  size_t n_fixed;
  uint32_t n_leaves, n_operations;
};

/* `user`: the node whose use of `root` is replaced; NULL: root itself is replaced, so it is always taken in. The
 * fixed inputs must stand in g->inputs already. */
Expr *grow_expr(Grow *g, Node *root, const Node *user);
/* Whether the expression holds this node. */
bool grow_has(const Grow *g, const Node *node);

static inline Grow grow_over(Pass *pass, uint32_t rank, const Size *const *dims) {
  Grow g = {.pass = pass, .rank = rank, .operations = true};
  for (uint32_t i = 0; i < rank; i++) g.dims[i] = dims[i];
  return g;
}

// ---- what is known from the position alone ----

/* How the coordinates of a node come from those of the domain: coordinate of axis i = index(axes[i]) + offsets[i]. */
typedef struct AxisMap {
  int8_t axes[MAX_RANK]; /* axis of the domain counted from the last; -1: none */
  const Size *offsets[MAX_RANK];
} AxisMap;

/* The map of a node that broadcasts to the domain. */
AxisMap axis_map_of(SizeTable *sizes, const Node *node, uint32_t rank, const Size *const *dims);
/* NULL if the node is not known from the position, or would be expensive to compute for each element. */
Expr *grow_index(Graph *graph, const Node *node, const AxisMap *map);

#endif

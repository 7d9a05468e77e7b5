/* Differentiate: the gradient of a loss as nodes of the same graph. train/loss_parts.h: what a loss is made of.
 *
 * In: the graph of an objective as it was elaborated: primitive operations, nothing fused. Out: the same graph with the
 * nodes of the backward half at its end, all of them operations that there are anyway, so that passes, interpreter and
 * plan treat them like any other. Refuses operations that have no rule, with their place. */
#ifndef TFM_PASSES_DIFFERENTIATE_H
#define TFM_PASSES_DIFFERENTIATE_H

#include "graph/build.h"

// ---- gradients ----

typedef struct Seed { /* the cotangent of a value, of its shape */
  Node *of, *seed;
} Seed;

typedef struct Gradient {
  Node *weight, *gradient;
} Gradient;

typedef struct DifferentiateRequest {
  Graph *graph;
  Diag *diag;
  const Seed *seeds;
  uint32_t n_seeds;
  const Map *stopped; /* nodes (by their pointers) through which nothing flows back */
  bool (*is_trained)(const void *context, const Node *weight);
  const void *context;
} DifferentiateRequest;

typedef struct Gradients {
  VEC(Gradient) items; /* of the trained weights that the seeds depend on, in the order of the graph */
} Gradients;

/* False after an error. */
bool differentiate(const DifferentiateRequest *request, Gradients *gradients);

// ---- differentiate_axes.c, differentiate_rules.c ----

typedef struct Backward {
  Builder builder; /* at the end of the graph, with the origin of the node whose rule runs */
  Diag *diag;
  Node **cotangents; /* by id of the forward nodes; NULL: nothing flows back yet */
  uint32_t n_forward; /* ids of forward nodes are less */
  bool *active;      /* by id: depends on a trained weight in a differentiable way */
} Backward;

/* Adds to the cotangent of x what a user of it gives; axes along which x was broadcast are summed. */
void backward_give(Backward *d, Node *x, Node *g);
/* What the operation gives its inputs for the cotangent g of the node; NULL: it has no rule. */
typedef void (*BackwardRule)(Backward *d, Node *node, Node *g);
BackwardRule backward_rule(OpKind op);

#endif

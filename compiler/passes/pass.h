/* What every pass sees: the graph, memory for the time of the pass, and where fusions and refusals are recorded.
 *
 * A pass does not print, time, verify or know its neighbours; the manager does that. It returns whether it changed
 * anything. When it begins, ids are dense and in the order of the list. Memory from `scratch` is gone after the pass;
 * what stays in the graph comes from graph->arena. */
#ifndef TFM_PASSES_PASS_H
#define TFM_PASSES_PASS_H

#include "graph/build.h"
#include "passes/passes.h"

typedef struct Pass {
  Graph *graph;
  Arena *scratch;
  PassLog *log; /* NULL: nothing is recorded */
  VEC(uint8_t) is_static; /* by id, what match_is_static found out */
} Pass;

typedef enum PassProperty {
  PROP_CANONICAL = 1 << 0, /* constants to the right, divisions by constants as products, views composed */
  PROP_MASKS = 1 << 1,     /* masks of equal fill are one */
  PROP_ATTENTION = 1 << 2, /* attention is found */
  PROP_FOLDED = 1 << 3,    /* constant factors are in the weights where that is possible */
  PROP_ROUTED = 1 << 11,   /* experts read rows of their own, so that their projections are no siblings of others */
  PROP_SIBLINGS = 1 << 4,  /* sibling projections are merged */
  PROP_NO_ROTARY = 1 << 5,
  PROP_SHAPES = 1 << 6,    /* tables have rank 2, softmax is over the last axis, linear has static weights */
  PROP_EPILOGUES = 1 << 7,
  PROP_PROLOGUES = 1 << 8,
  PROP_ROWS = 1 << 9,      /* norms and reductions are NORM and REDUCE */
  PROP_LOWERED = 1 << 10   /* only what plan takes: see lower-pointwise in fuse_expressions.c */
} PassProperty;

#define PASS(function, name, needs, gives, breaks, least, line) bool pass_##function(Pass *pass);
#include "passes/passes.def"

/* Records a fusion (or its refusal) at the origin of `node`. A refusal that a pass meets again is recorded once. */
void pass_record(Pass *pass, Fusion fusion, bool done, const Node *node, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Adds to the reason of the newest record what is true only if this node is still there after all passes. */
void pass_record_while(Pass *pass, const Node *witness, const char *more);
/* Takes back refusals of a fusion at the origin of a node that another fusion has taken since. */
void pass_overrule(Pass *pass, Fusion fusion, const Node *node);
/* After the last pass: decides what the records say of their witnesses. */
void pass_log_close(PassLog *log);

static inline Builder pass_builder(Pass *pass, Node *before, const Node *origin) {
  return (Builder){.graph = pass->graph, .before = before, .origin = origin->origin};
}

#endif

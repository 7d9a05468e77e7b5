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

/* What a graph may have, in the order in which the passes bring it about. */
#define PASS_PROPERTIES(PROPERTY)                                                                          \
  PROPERTY(CANONICAL) /* constants to the right, divisions by constants as products, views composed */     \
  PROPERTY(MASKS)     /* masks of equal fill are one */                                                    \
  PROPERTY(ATTENTION) /* attention is found */                                                             \
  PROPERTY(FOLDED)    /* constant factors are in the weights where that is possible */                     \
  PROPERTY(ROUTED)    /* experts read rows of their own: their projections are no siblings of others */    \
  PROPERTY(SIBLINGS)  /* sibling projections are merged */                                                 \
  PROPERTY(NO_ROTARY) /* rotary is a table and a pointwise expression */                                   \
  PROPERTY(SHAPES)    /* tables have rank 2, softmax is over the last axis, linear has static weights */   \
  PROPERTY(EPILOGUES) /* pointwise work on products is theirs */                                           \
  PROPERTY(PROLOGUES) /* pointwise work before a norm or a reduction is its own */                         \
  PROPERTY(ROWS)      /* norms and reductions are NORM and REDUCE */                                       \
  PROPERTY(LOWERED)   /* only what plan takes: see lower-pointwise in fuse_expressions.c */

enum {
#define PROPERTY(Enum) PROP_NUMBER_##Enum,
  PASS_PROPERTIES(PROPERTY)
#undef PROPERTY
};

typedef enum PassProperty {
#define PROPERTY(Enum) PROP_##Enum = 1 << PROP_NUMBER_##Enum,
  PASS_PROPERTIES(PROPERTY)
#undef PROPERTY
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

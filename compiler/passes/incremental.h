/* Incremental: a model that writes, cut in two so that a token costs what the token costs.
 *
 * In: the graph of a model with a generate block, as the elaborator made it. Out, if that is sound:
 *
 * source  what does not depend on the tokens written. Inputs: the model's, but the one that grows, in their order.
 *         Outputs "source.0", "source.1" ...: the values that `step` reads. NULL if step reads none.
 * step    the new positions of some rows. Inputs: the one that grows, [rows, fresh]; "source.N"; "cache.N", values of
 *         earlier positions, with `past` in place of the length. Outputs: the scores, under the output's own name,
 *         [rows, kept, vocab], of the last `kept` new positions; "log_sum" [rows, kept], the log of the sum of exp(scores);
 *         "cache.N", concat of the input and the new positions. Sizes: those of the model without that of the length,
 *         and "<length>.past", "<length>.fresh", "<length>.kept".
 *
 * Neither has ragged sizes: a run of source is one of items, a run of step one of rows, that have the same sizes.
 *
 * Both are ordinary graphs, not yet fused; the passes, the interpreter, plan take them like any other. What each node of
 * the model is needed for (its own rows, or the whole history) and why a model is not incremental is recorded for
 * --report, with the place. */
#ifndef TFM_PASSES_INCREMENTAL_H
#define TFM_PASSES_INCREMENTAL_H

#include "passes/passes.h"

typedef struct Incremental {
  Graph *source;    /* NULL: none */
  Graph *step;      /* NULL: the model is not incremental; the whole forward runs for each token */
  uint32_t n_caches, n_sources;
  uint32_t n_ragged;
  const char *const *ragged; /* sizes of `source` that each item of a batch has of its own */
  const char *reason; /* why not: "softmax over positions that are not masked"; NULL if it is */
  Origin origin;      /* of the node that is the reason */
} Incremental;

/* Always returns; the graph is not changed. `log` may be NULL. */
Incremental incremental_derive(Arena *arena, Diag *diag, const Graph *graph, PassLog *log);

/* A second output of a graph whose only output is the scores: "log_sum", as a step has it, so that a beam
 * search which computes whole rows anew gets the sums from generated code too. */
void incremental_add_log_sum(Graph *graph);

/* Of the inputs of a step graph: N of "cache.N" or "source.N"; -1: another input. */
int32_t incremental_cache_number(const Node *input);
int32_t incremental_source_number(const Node *input);

#endif

/* Incremental: a generative model cut in two, so that a new token costs the work of one position, not of the whole row.
 *
 * In: the graph of a model with a generate block, as the elaborator made it. Out, if that is sound:
 *
 * encoder what does not depend on the tokens. Its inputs are the model's but for the decoder input, in their order; its
 *         outputs, with the roles `encoded 0`, `encoded 1` ..., are the values that the step reads. NULL if the step
 *         reads none.
 * step    the new positions of some rows. Inputs: `tokens` [rows, fresh]; each `encoded n`; each `cache n`, a value
 *         at earlier positions, with `past` in place of the length; each `state n` and `sum n`, what earlier positions
 *         have left, of one size. Outputs: `logits` [rows, kept, vocab] of the last `kept` new positions, under the
 *         name that they have in the model; `logsumexp` [rows, kept]; each `cache n`, the concat of the input and the
 *         new positions; each `state n` and `sum n`, what it is behind them. Sizes: the model's, but `past`, `fresh`
 *         and `kept` in place of the length.
 *
 * The roles are those of graph/roles.def. Readers of the two graphs go by them, never by names.
 *
 * Neither graph has ragged sizes: the encoder runs for one item or for items of the same sizes, and a step for rows
 * of the same sizes.
 *
 * Both are ordinary graphs that are not fused yet; the passes, the interpreter and the planner take them like any
 * other. The log records what is cached, or why the model has no incremental form, with the place. */
#ifndef TFM_INCREMENTAL_INCREMENTAL_H
#define TFM_INCREMENTAL_INCREMENTAL_H

#include "passes/passes.h"

typedef struct Incremental Incremental;
struct Incremental {
  Graph *encoder; /* NULL: none */
  Graph *step;    /* NULL: the model is not incremental; the whole forward runs for each token */
  uint32_t n_caches, n_encoded, n_states, n_sums;
  uint32_t n_ragged;
  const char *const *ragged; /* sizes of `encoder` that each item of a batch has of its own */
  const char *reason; /* why not: "softmax over positions that are not masked"; NULL if it is */
  Origin origin;      /* of the node that is the reason */
};

/* Always returns; the graph is not changed. `log` may be NULL. */
Incremental incremental_derive(Arena *arena, Diag *diag, const Graph *graph, PassLog *log);

/* Adds the output "logsumexp", as a step has it, to a graph whose only output is the logits, so that a beam search on a
 * model without an incremental form gets the sums from generated code too. */
void incremental_add_logsumexp(Graph *graph);

#endif

/* Scorer: a model with a generate block, as the decoding loop of the runtime sees it: scores of the token after some
 * rows.
 *
 * In: the graph, an engine made from it, the inputs that do not grow. Out: for each row the last position of the output
 * that the block names. Every call computes whole rows; rows of one length go together, rows of a ragged size all do.
 * Refuses inputs whose batch differs, and batches or vocabularies of a size that generation cannot choose. */
#ifndef TFM_DRIVER_SCORER_H
#define TFM_DRIVER_SCORER_H

#include "driver/engine.h"
#include "driver/row_groups.h"

typedef struct ScorerInput { /* an input that does not grow, or the lengths of a ragged size */
  const char *name;
  Tensor tensor;
  bool of_batch[MAX_RANK]; /* the axis holds the items, each `dims / batch` long */
} ScorerInput;

typedef struct Scorer {
  Session *session;
  Engine *engine;
  Arena *scratch; /* of one call */
  const char *grows, *lengths; /* the input that grows; "time.lengths" if its size is ragged */
  size_t n_outputs, output;
  bool gives_log_sums; /* the last output is the log of the sums of exp(scores) */
  int64_t batch; /* items */
  bool is_single; /* the model takes one row at a time */
  bool is_decoder; /* nothing but the rows goes in */
  VEC(ScorerInput) inputs;
  int64_t vocab;
  const Tensor *prompt, *prompt_lengths; /* NULL: not given */
} Scorer;

/* Before the graph becomes an engine's. NULL after an error. */
Scorer *scorer_new(Session *session, const Graph *graph, const EvalInputs *inputs);
/* What the runtime calls; scorer->engine must be set. After an error the message is in the session's diag. */
tfm_generate_model scorer_model(Scorer *scorer);
EvalInputs scorer_inputs(const Scorer *scorer); /* those that do not grow, of all items */
/* All inputs of a run of some rows, in scorer->scratch, and whether the model takes two rows in one run. */
EvalInputs scorer_row_inputs(Scorer *scorer, const RowGroup *rows);
bool scorer_fits(const Scorer *scorer, const tfm_step_rows *rows, int64_t a, int64_t b);
void scorer_destroy(Scorer *scorer); /* NULL is ignored; the engine is not the scorer's */

#endif

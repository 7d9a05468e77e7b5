/* Scorer: a generative model as the decoding loop of the runtime sees it: rows of tokens go in, the logits of the
 * next token come out.
 *
 * In: the graph, an engine made from it, the inputs other than the decoder input. Out: for each row the logits at its
 * last position, from the output that the generate block names. Every call computes whole rows; rows of one length go
 * together, and all rows do if their length is ragged. Refuses inputs whose batch differs, and models whose number of
 * rows, length or vocabulary is not what generation needs.
 *
 * Memory is that of the settings' arena, but for the scratch of a call, which scorer_destroy frees. */
#ifndef TFM_ENGINES_SCORER_H
#define TFM_ENGINES_SCORER_H

#include "engines/engine.h"
#include "tfm/generate.h"

// ---- rows that go together ----

/* Each row of a call of the decoding loop is in one group, in the order of the first row of each. Tensors may have
 * one part for each row: items of a batch, caches. */
typedef struct RowGroup {
  const tfm_step_rows *call;
  int64_t *numbers, n; /* which rows of the call */
  int64_t longest;     /* tokens */
} RowGroup;

typedef struct RowGrouping {
  void *context;
  bool (*fits)(const void *context, const tfm_step_rows *call, int64_t a, int64_t b); /* two rows can be run together */
  bool (*run)(void *context, const RowGroup *group);
} RowGrouping;

/* Runs every group; false as soon as a run is. */
bool row_groups_run(Arena *arena, const tfm_step_rows *call, const RowGrouping *grouping);

/* The parts of the group's items, out of those of `items`. */
Tensor parts_gather(Arena *arena, const Tensor *from, int64_t items, uint32_t axis, const RowGroup *group);
/* The tokens of the group's rows from `past` on, [rows][longest - past]. */
Tensor group_tokens(Arena *arena, const RowGroup *group, int64_t past);

// ---- the scorer ----

typedef struct ScorerInput { /* an input other than the decoder input, or the lengths of a ragged size */
  const char *name;
  Tensor tensor;
  bool of_batch[MAX_RANK]; /* the axis holds the items, each `dims / batch` long */
} ScorerInput;

typedef struct Scorer {
  Arena *arena;
  Diag *diag;
  Engine *engine;
  Arena *scratch; /* of one call */
  const char *decoder_input, *lengths; /* their names; "time.lengths" if its size is ragged */
  size_t n_outputs, output;
  bool gives_logsumexp; /* the last output is the logsumexp of the logits */
  int64_t batch; /* items */
  bool is_single; /* the model takes one row at a time */
  bool is_decoder; /* nothing but the rows goes in */
  VEC(ScorerInput) inputs;
  int64_t vocab;
  const Tensor *prompt, *prompt_lengths; /* NULL: not given */
} Scorer;

/* Must be called before the graph becomes an engine's. NULL after an error; the caller frees it with scorer_destroy. */
Scorer *scorer_new(const EngineSettings *settings, const Graph *graph, const EvalInputs *inputs);
/* The functions for the runtime. The caller sets scorer->engine first. After an error the message is in the diag of
 * the settings. */
tfm_generate_model scorer_model(Scorer *scorer);
EvalInputs scorer_inputs(const Scorer *scorer); /* those other than the decoder input, of all items */
/* scorer_row_inputs: all inputs of a run of some rows, in scorer->scratch. scorer_fits: whether the model takes two
 * rows in one run. */
EvalInputs scorer_row_inputs(Scorer *scorer, const RowGroup *rows);
bool scorer_fits(const Scorer *scorer, const tfm_step_rows *rows, int64_t a, int64_t b);
void scorer_destroy(Scorer *scorer); /* NULL is ignored; the engine is not the scorer's */

#endif

/* GenerationOutput: what `tfmc generate` has written, to files or as JSON lines.
 *
 * In: the finished rows, the names of --output and --return-output, the graph with all its outputs. Out: the tensors
 * of generation itself, and for each name of --return-output a tensor with a part for each row, from one more run on
 * the rows. A part has the bits that `tfmc run` gives for its row alone; where other rows are longer, zeros follow it.
 * Refuses names that nothing has or that generation itself uses, and outputs in which the rows have no axis of their
 * own. */
#ifndef TFM_CLI_GENERATION_OUTPUT_H
#define TFM_CLI_GENERATION_OUTPUT_H

#include "cli/session.h"
#include "engines/scorer.h"

// ---- outputs of the model that --return-output names ----

typedef struct ReturnedOutputs {
  Graph *graph; /* all that `tfmc run` computes, so that the bits are the same; NULL: nothing is returned */
  const char **outputs; /* the names of all of them */
  size_t n_outputs;
  uint32_t n;
  const char **names;
  uint32_t *numbers; /* which outputs they are */
  uint32_t *axes;    /* where the rows lie; the rank: nowhere, there is one row alone */
  Tensor *tensors;   /* when they are computed */
} ReturnedOutputs;

/* Whether generation calls a result of its own so. */
bool is_generations_own(const char *name);
/* What --return-output names, in its order. False after an error. */
bool returned_outputs_read(Session *session, const Graph *graph, ReturnedOutputs *returned);
/* Finds the axis of the rows in each output, before any row is written. `is_one_row`: there will be a single row.
 * False after an error. */
bool returned_outputs_place(Session *session, ReturnedOutputs *returned, bool is_one_row);
/* Computes the tensors, in the session's arena. The graph becomes an engine's. False after an error. */
bool returned_outputs_compute(Session *session, ReturnedOutputs *returned, Scorer *scorer, WeightSource *weights,
                              const tfm_generated *generated);

// ---- writing ----

/* Whether everything that --output names will exist. False after an error. */
bool generation_output_check_names(Session *session, const tfm_generate_options *options,
                                   const ReturnedOutputs *returned);
void generation_output_rows(Session *session, const tfm_generated *generated, const ReturnedOutputs *returned);
void generation_output_probabilities(Session *session, int64_t n, int64_t vocab, float *probabilities);

#endif

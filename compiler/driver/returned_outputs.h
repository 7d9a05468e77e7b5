/* ReturnedOutputs: outputs of the model, besides what it writes, of one run on the rows that it wrote.
 *
 * In: the names of --return-output, the graph with all its outputs, the rows. Out: a tensor for each name with a part for
 * each row. A part has the bits that `tfmc run` gives for its row alone; where other rows are longer, zeros follow it.
 * Refuses names that the model does not return or that generation itself gives, and outputs in which the rows have no
 * axis of their own. */
#ifndef TFM_DRIVER_RETURNED_OUTPUTS_H
#define TFM_DRIVER_RETURNED_OUTPUTS_H

#include "driver/session.h"
#include "engines/scorer.h"

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
/* Whether the rows can be put together: known before they are written. `is_one_row`: there will be just one. */
bool returned_outputs_place(Session *session, ReturnedOutputs *returned, bool is_one_row);
/* Computes the tensors, in the session's arena. The graph becomes an engine's. False after an error. */
bool returned_outputs_compute(Session *session, ReturnedOutputs *returned, Scorer *scorer, WeightSource *weights,
                              const tfm_generated *generated);

#endif

/* Conditions: what every run of a model must meet, as `tfmc check` shows it.
 *
 * In: the checks of a graph as it was elaborated. Out: a list with the lines they come from; a warning for each that
 * leaves a run-time size one value, unless the model states it by `require`. */
#ifndef TFM_CLI_CONDITIONS_H
#define TFM_CLI_CONDITIONS_H

#include "graph/graph.h"

/* "  time <= 512              model.tfm:12" below a heading; nothing if there are none. */
void conditions_print(StrBuf *out, const Graph *graph);
void conditions_warn(Diag *diag, const Graph *graph);

#endif

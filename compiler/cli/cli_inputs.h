/* Inputs: the tensors of one run, from files or random.
 *
 * In: --inputs, --input, and the model. Out: one tensor for each input that was given, in the order of the model's
 * inputs, then the lengths of ragged sizes. Refuses unknown names, inputs that are given twice or missing, and other
 * types; shapes and values are checked by the engine that runs them. Everything lives in the session's arena. */
#ifndef TFM_CLI_INPUTS_H
#define TFM_CLI_INPUTS_H

#include "cli/session.h"
#include "graph/eval.h"

/* NULL after an error. */
EvalInputs *inputs_load(Session *session, const Graph *graph);
/* The same, but the input `optional` may be left out. */
EvalInputs *inputs_load_except(Session *session, const Graph *graph, const char *optional);
/* The files that --inputs and --input name, for the check that no output overwrites them. */
void inputs_list_files(Session *session, const char ***paths, size_t *n);

#endif

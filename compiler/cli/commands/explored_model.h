/* The data of a page of `tfmc explore`, made for a command.
 *
 * In: a session, whose options name the model, its targets and the sizes that the page begins with. Out: the data
 * (explore/data.def). Refused, with messages: sizes of inputs that the model does not have. */
#ifndef TFM_CLI_COMMANDS_EXPLORED_MODEL_H
#define TFM_CLI_COMMANDS_EXPLORED_MODEL_H

#include <jansson.h>

#include "cli/session.h"
#include "explore/explore.h"

typedef VEC(ExploreSize) ExploreSizes;

/* Loads the model. `sizes`: that the page begins with; NULL: those of the command line. NULL after an error; else
 * json_decref when done. */
json_t *explored_model(Session *session, bool is_for_comparison, const ExploreSizes *sizes);
/* The sizes that these inputs have. */
ExploreSizes explored_sizes_of_inputs(Session *session, const Graph *graph, const EvalInputs *inputs);

#endif

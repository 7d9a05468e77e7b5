/* Runs that `tfmc explore --profile` measures and puts into the data of its page. */
#ifndef TFM_CLI_COMMANDS_EXPLORED_RUNS_H
#define TFM_CLI_COMMANDS_EXPLORED_RUNS_H

#include <jansson.h>

#include "cli/session.h"
#include "engines/engine.h"

/* Adds times of steps, of runs, and the machine's figures to the data of the model that the session names. False after
 * an error. */
bool explored_runs_add(Session *session, json_t *data);
/* The same of an engine that is there, with these inputs alone, whose sizes the page begins with. */
bool explored_runs_of(Session *session, json_t *data, Engine *engine, const EvalInputs *inputs);

#endif

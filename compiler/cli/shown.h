/* Shown: what --stage of dump and graph names, made as a run makes it.
 *
 * In: a session with a row of stages.def. Out: the graph of that stage, after the passes if the stage is behind them;
 * its report is printed and its requirements are checked on the way; and the plan of such a graph. Every graph comes
 * from the functions that runs, libraries and training call, so no picture or text can be of something else. Refused:
 * parts of the incremental form of a model that has none, gradients of one without a train block. */
#ifndef TFM_CLI_SHOWN_H
#define TFM_CLI_SHOWN_H

#include "cli/cli_model.h"
#include "plan/plan.h"

/* That of --stage, or of the graph as it was written. */
const StageInfo *shown_stage(const Session *session);
/* NULL after an error. `stage` is not that of the syntax tree. */
Graph *shown_graph(Session *session, const StageInfo *stage);
/* The plan of a graph after its passes, for -march. NULL after an error. */
const Plan *shown_plan(Session *session, Graph *graph);

#endif

/* What the options say about passes, and the graph after them. */
#ifndef TFM_DRIVER_PASSES_OPTIONS_H
#define TFM_DRIVER_PASSES_OPTIONS_H

#include "driver/session.h"
#include "passes/passes.h"

PassOptions passes_options(const Options *options);
/* Runs the passes that the options ask for, or those that a library was made with, and prints --report. False after an
 * error, --require-fusion included. */
bool run_passes(Session *session, Graph *graph);
/* The report, if it was asked for, of a graph and of what was done to it; false if a fusion is missing that was required. */
bool report_passes(Session *session, Graph *graph, const PassLog *log);

#endif

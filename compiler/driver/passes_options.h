/* What the options say about passes, and the graph after them. */
#ifndef TFM_DRIVER_PASSES_OPTIONS_H
#define TFM_DRIVER_PASSES_OPTIONS_H

#include "compile/library.h"
#include "driver/weight_source.h"

PassOptions passes_options(const Options *options);
/* What the options, or the library of the command line, say about a compilation: everything but the target and the cache.
 * Its report prints --report and refuses what --require-fusion wants and is not there. `weights`: NULL, or where they come
 * from. */
CompileRequest compile_request(Session *session, WeightSource *weights);
/* The incremental form of a model with a generate block, if --report wants to know of it; else NULL. */
Derivation *derive_for_report(Session *session, const Graph *graph);
/* The model of the command line as a library is made from it: its text, its generate block; the graph becomes the model's.
 * False after an error. */
bool make_library_model(Session *session, Graph *graph, LibraryModel *model);
/* The plans of session->library, made again, with the layout of its weights. False after an error. */
bool plans_of_library(Session *session, Graph *graph, LibraryPlans *plans);
/* Runs the passes that the options ask for, or those that a library was made with, and prints --report. False after an
 * error, --require-fusion included. */
bool run_passes(Session *session, Graph *graph);
/* The report, if it was asked for, of a graph and of what was done to it; false if a fusion is missing that was required. */
bool report_passes(Session *session, Graph *graph, const PassLog *log);

#endif

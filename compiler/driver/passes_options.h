/* What the options say about passes, and the graph after them. */
#ifndef TFM_DRIVER_PASSES_OPTIONS_H
#define TFM_DRIVER_PASSES_OPTIONS_H

#include "driver/model.h"
#include "engines/engine.h"

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


// ---- what the options say about engines ----

/* In the session's arena. */
EngineSettings *engine_settings(Session *session);
/* An engine of this kind, or that of --engine or of the library. NULL after an error; else engine_destroy when done. */
Engine *session_engine_of(Session *session, const EngineKind *kind, Graph *graph, WeightSource *weights);
Engine *session_engine(Session *session, Graph *graph, WeightSource *weights);
WeightCheck session_weight_check(Session *session);
/* Of --weights or --random-weights, or of the library. NULL after an error; else weight_source_close when done. */
WeightSource *session_weights(Session *session, Graph *graph);

#endif

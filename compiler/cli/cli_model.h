/* Model: from the command line to what the layers below take.
 *
 * In: the options and the file that they name, a .tfm file or, since a library carries the text of its model, a
 * compiled library. Out: the graph; requests for the compiler, for the engines and for weights, which name an arena, a
 * diag and values, but no option; what this machine is. Nothing below this header knows a Session. */
#ifndef TFM_CLI_MODEL_H
#define TFM_CLI_MODEL_H

#include "cli/session.h"
#include "elaborate/objective.h"
#include "engines/engine.h"
#include "parse/include.h"
#include "target/target.h"

/* The program that the first file of the command line holds. NULL after an error. */
ParsedProgram *model_parse(Session *session);
/* Its graph, elaborated with -D, --model and --weights-prefix. If the file is a compiled library (and the verb is one
 * that takes one), the graph of the model in it, and session->library. NULL after an error. */
Graph *model_load(Session *session);
/* Whether the file is a compiled library or a .tfmm file, by its first bytes or its ending; and what it says of itself,
 * which the caller closes. NULL after an error. */
bool names_library(Session *session, const char *path);
LibraryFile *library_of_file(Session *session, const char *path);
/* What the train block of the model names; `is_training`: with dropout. NULL after an error; if there is no such
 * block, too, which is an error for training_objective. */
Objective *model_objective(Session *session, bool is_training);
Objective *training_objective(Session *session, bool is_training);

// ---- what the options say about passes and libraries ----

PassOptions passes_options(const Options *options);
/* What the options, or the library of the command line, say about a compilation: everything but the target and the
 * cache. Its report prints --report and refuses a fusion that --require-fusion names and that is missing. `weights`:
 * where they come from, or NULL. */
CompileRequest compile_request(Session *session, WeightSource *weights);
/* The incremental form of a generative model, if --report asks for it; else NULL. */
Derivation *derive_for_report(Session *session, const Graph *graph);
/* The model of the command line, from which a library is made: its graph, which becomes the model's, and its generate
 * block. False after an error. */
bool make_library_model(Session *session, Graph *graph, LibraryModel *model);
/* The plans of session->library, made again, with the layout of its weights. False after an error. */
bool plans_of_library(Session *session, Graph *graph, LibraryPlans *plans);
/* Runs the passes that the options ask for, or those that a library was made with, and prints --report. False after an
 * error, --require-fusion included. */
bool run_passes(Session *session, Graph *graph);
/* Prints the report of a graph and of what was done to it, if it was asked for. False if a fusion that
 * --require-fusion names was refused or never found. */
bool report_passes(Session *session, Graph *graph, const PassLog *log);
/* The same for a graph that no pass rewrites. */
bool report_no_passes(Session *session, Graph *graph);

// ---- what the options say about engines ----

/* That of --engine or of the library. */
const EngineKind *session_engine_kind(const Session *session);
/* In the session's arena. */
EngineSettings *engine_settings(Session *session);
/* An engine of this kind, or that of --engine or of the library. NULL after an error; else engine_destroy when done. */
Engine *session_engine_of(Session *session, const EngineKind *kind, Graph *graph, WeightSource *weights);
Engine *session_engine(Session *session, Graph *graph, WeightSource *weights);
/* The same for another graph of a model that has been reported: --report and --require-fusion are not about it. */
Engine *session_engine_again(Session *session, Graph *graph, WeightSource *weights);
WeightCheck session_weight_check(Session *session);
/* Of --weights or --random-weights, or of the library. NULL after an error; else weight_source_close when done. */
WeightSource *session_weights(Session *session, Graph *graph);
/* Notes types of --weights, if given, in the graph: 16 bits are packed, and fused, in another way. False: an error. */
bool session_note_weights(Session *session, Graph *graph);

// ---- this machine ----

/* The target of -march=. `must_run`: this CPU has to be able to run it. NULL after an error. */
const TargetInfo *host_choose_target(Session *session, bool must_run);

typedef struct HostInfo {
  const char *cpu;
  const TargetInfo *target; /* the best that it can run */
  int cpus;
} HostInfo;

HostInfo host_info(Arena *arena);
/* Why the host cannot run code for `target`, in words that follow "cannot run here: ", or NULL. */
const char *host_missing(Arena *arena, const TargetInfo *target);

#endif

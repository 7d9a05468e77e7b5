/* What the engines of compiled code share: a program and a context of the runtime. */
#ifndef TFM_DRIVER_ENGINE_COMPILED_H
#define TFM_DRIVER_ENGINE_COMPILED_H

#include "driver/engine.h"
#include "tfm/program.h"
#include "tfm/tfm.h"

/* What --threads asks for. */
tfm_context_options compiled_options(Session *session);
/* EngineKind.run for an engine whose program and context are set. */
bool compiled_run(Engine *engine, const EvalInputs *inputs, Tensor *outputs);
/* An error of the runtime as a message of the command. */
void compiled_report(Session *session, const tfm_error *error);

/* The model of session->library, with the weights that the options name: see engine_library.c. The graph is the library's.
 * NULL after an error; else tfm_model_close. */
tfm_model *library_open(Session *session, Graph *graph, WeightSource *weights);

#endif

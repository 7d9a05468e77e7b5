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

#endif

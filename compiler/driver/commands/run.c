/* tfmc run: the outputs of a model, to files or as a summary. */
#include "driver/commands/commands.h"
#include "engines/engine.h"
#include "driver/inputs.h"
#include "driver/outputs.h"
#include "driver/passes_options.h"

static void run(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  Tensor *outputs = ARENA_ARRAY(session->arena, Tensor, graph->outputs.n);
  Engine *engine = session_engine(session, graph, weights);
  if (engine && engine_run(engine, session->arena, inputs, outputs)) outputs_write(session, graph, outputs);
  engine_destroy(engine);
}

void command_run(Session *session) {
  if (!outputs_check_files(session)) return; /* known before anything is compiled */
  Graph *graph = model_load(session);
  if (!graph || !outputs_check_names(session, graph)) return;
  WeightSource *weights = session_weights(session, graph);
  const EvalInputs *inputs = weights ? inputs_load(session, graph) : NULL;
  if (inputs) run(session, graph, weights, inputs);
  weight_source_close(weights);
}

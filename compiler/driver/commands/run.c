/* tfmc run: the outputs of a model, to files or as a summary. */
#include "driver/commands/commands.h"
#include "driver/engine.h"
#include "driver/inputs.h"
#include "driver/outputs.h"

static void run(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  Tensor *outputs = ARENA_ARRAY(session->arena, Tensor, graph->outputs.n);
  Engine *engine = engine_create(session, graph, weights);
  if (engine && engine_run(engine, inputs, outputs)) outputs_write(session, graph, outputs);
  engine_destroy(engine);
}

void command_run(Session *session) {
  if (!outputs_check_files(session)) return; /* known before anything is compiled */
  Graph *graph = model_load(session);
  if (!graph || !outputs_check_names(session, graph)) return;
  WeightSource *weights = weight_source_open(session, graph);
  const EvalInputs *inputs = weights ? inputs_load(session, graph) : NULL;
  if (inputs) run(session, graph, weights, inputs);
  weight_source_close(weights);
}

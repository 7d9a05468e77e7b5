/* tfmc run: what a model computes.
 *
 * In: a model, weights, inputs. Out: the outputs, as files or as a summary. Refuses files that cannot be written and
 * names of outputs that there are not before anything is compiled. */
#include "cli/cli_inputs.h"
#include "cli/cli_model.h"
#include "cli/commands/commands.h"
#include "cli/outputs.h"
#include "engines/engine.h"

/* The number of outputs is read before the graph becomes the engine's. */
static void run(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  Tensor *outputs = ARENA_ARRAY(session->arena, Tensor, graph->outputs.n);
  Engine *engine = session_engine(session, graph, weights);
  if (engine && engine_run(engine, session->arena, inputs, outputs)) outputs_write(session, graph, outputs);
  engine_destroy(engine);
}

/* Files and names of outputs are checked first, since compiling a large model takes a while. */
void command_run(Session *session) {
  if (!outputs_check_files(session)) return; /* known before anything is compiled */
  Graph *graph = model_load(session);
  if (!graph || !outputs_check_names(session, graph)) return;
  WeightSource *weights = session_weights(session, graph);
  const EvalInputs *inputs = weights ? inputs_load(session, graph) : NULL;
  if (inputs) run(session, graph, weights, inputs);
  weight_source_close(weights);
}

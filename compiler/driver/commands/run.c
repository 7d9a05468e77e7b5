/* tfmc run: the outputs of a model, to files or as a summary. */
#include "driver/commands/commands.h"
#include "driver/engine.h"
#include "driver/inputs.h"
#include "driver/outputs.h"

/* Outputs must not overwrite what is read, and must be writable: known before anything is compiled. */
static bool check_outputs(Session *session) {
  const char **inputs;
  size_t n;
  inputs_list_files(session, &inputs, &n);
  const char **all = ARENA_ARRAY(session->arena, const char *, n + 2);
  for (size_t i = 0; i < n; i++) all[i] = inputs[i];
  all[n] = session->options.files.items[0];
  all[n + 1] = option_text(&session->options, OPTION_WEIGHTS, NULL);
  return outputs_check_files(session, all, n + 2);
}

static void run(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  Tensor *outputs = ARENA_ARRAY(session->arena, Tensor, graph->outputs.n);
  Engine *engine = engine_create(session, graph, weights);
  if (engine && engine_run(engine, inputs, outputs)) outputs_write(session, graph, outputs);
  engine_destroy(engine);
}

void command_run(Session *session) {
  if (!check_outputs(session)) return;
  Graph *graph = model_load(session);
  if (!graph || !outputs_check_names(session, graph)) return;
  WeightSource *weights = weight_source_open(session, graph);
  const EvalInputs *inputs = weights ? inputs_load(session, graph) : NULL;
  if (inputs) run(session, graph, weights, inputs);
  weight_source_close(weights);
}

/* tfmc profile: how long each step of a run takes, and so each module. */
#include "driver/profile.h"

#include <string.h>

#include "driver/commands/commands.h"
#include "driver/engine.h"
#include "driver/inputs.h"
#include "driver/progress.h"
#include "tfm/tfm.h"

/* `nanoseconds` gets a row per run; NULL: these runs are not measured. */
static bool run_all(Session *session, Engine *engine, const EvalInputs *inputs, size_t n, Tensor *outputs,
                    uint64_t *nanoseconds) {
  Progress *progress = progress_begin(session, "measuring");
  bool done = true;
  for (size_t i = 0; i < n && done; i++) {
    if (nanoseconds) tfm_context_profile(engine->context, nanoseconds + i * engine->program->n_steps);
    done = engine_run(engine, inputs, outputs);
    progress_set(progress, i + 1, n);
  }
  progress_end(progress);
  return done;
}

static Profile *measure(Session *session, Engine *engine, const EvalInputs *inputs, size_t n_outputs) {
  size_t warmup = option_count(&session->options, OPTION_WARMUP, 3);
  size_t runs = option_count(&session->options, OPTION_ITERATIONS, 20);
  Tensor *outputs = ARENA_ARRAY(session->arena, Tensor, n_outputs);
  uint64_t *nanoseconds = ARENA_ARRAY(session->arena, uint64_t, runs * engine->program->n_steps);
  if (!run_all(session, engine, inputs, warmup, outputs, NULL)) return NULL;
  if (!run_all(session, engine, inputs, runs, outputs, nanoseconds)) return NULL;
  return profile_new(session->arena, engine->program, nanoseconds, runs, tfm_context_threads(engine->context));
}

static void print(Session *session, const Profile *profile) {
  const char *format = option_text(&session->options, OPTION_PROFILE_FORMAT, "table");
  StrBuf text = strbuf_new(session->arena);
  if (strcmp(format, "chrome") == 0)
    profile_chrome(&text, profile);
  else if (strcmp(format, "html") == 0)
    profile_html(&text, profile);
  else
    profile_table(&text, profile);
  session_write(session, &text);
}

static void profile(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  size_t n_outputs = graph->outputs.n;
  Engine *engine = engine_create(session, graph, weights);
  if (engine && !engine->program)
    option_error(&session->diag, OPTION_ENGINE, "the reference interpreter has no steps to measure");
  const Profile *result = engine && engine->program ? measure(session, engine, inputs, n_outputs) : NULL;
  if (result) print(session, result);
  engine_destroy(engine);
}

void command_profile(Session *session) {
  const char *output = option_text(&session->options, OPTION_OUTPUT, NULL);
  const char *read[] = {session->options.files.items[0], option_text(&session->options, OPTION_WEIGHTS, NULL)};
  if (output && !session_check_output(session, output, read, 2)) return;
  Graph *graph = model_load(session);
  WeightSource *weights = graph ? weight_source_open(session, graph) : NULL;
  const EvalInputs *inputs = weights ? inputs_load(session, graph) : NULL;
  if (inputs) profile(session, graph, weights, inputs);
  weight_source_close(weights);
}

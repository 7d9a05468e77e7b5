/* Runs of a model that are measured, for tfmc bench and tfmc profile. */
#ifndef TFM_CLI_COMMANDS_COMMAND_BENCH_H
#define TFM_CLI_COMMANDS_COMMAND_BENCH_H

#include "cli/commands/commands.h"
#include "engines/engine.h"
#include "measure/bench.h"

typedef struct Runs {
  Session *session;
  Engine *engine;
  const EvalInputs *inputs;
  Tensor *outputs;
  size_t warmup, iterations;
  uint64_t *nanoseconds; /* of each step: a row for each run that counts; NULL: not wanted */
  Progress *progress;
} Runs;

/* As many as the command line says. */
Runs runs_of(Session *session, Engine *engine, const EvalInputs *inputs, size_t n_outputs);
/* Measures the steps if `nanoseconds` is set, else whole runs, whose times `bench` gets. */
bool runs_measure(Runs *runs, Bench *bench);
/* Loads what the command line names; nothing happens after an error. */
void runs_load_and(Session *session, void (*act)(Session *, Graph *, WeightSource *, const EvalInputs *));

#endif

/* What the ways of tfmc verify share: a model, what it computes, and what it is held against. */
#ifndef TFM_CLI_COMMANDS_VERIFICATION_H
#define TFM_CLI_COMMANDS_VERIFICATION_H

#include "cli/agreement.h"
#include "cli/commands/commands.h"
#include "engines/engine.h"

typedef struct Verification {
  Session *session;
  Graph *graph; /* as elaborated; engines get copies */
  WeightSource *weights;
  const EvalInputs *inputs;
  const Tensor *reference; /* the interpreter's outputs, once they are asked for; NULL: it has none */
  bool has_reference;      /* they were asked for */
} Verification;

/* What an engine, which goes away, computes; `engine` NULL, and NULL: an error. */
Tensor *verification_outputs(const Verification *v, Engine *engine, size_t n);
/* The outputs by an engine of this kind; NULL: the one that the command line chose. NULL after an error. */
Tensor *verification_compute(const Verification *v, const EngineKind *kind);
/* Prints or reports how an output compares. True if they agree. */
bool verification_compare(const Verification *v, const char *name, const Tensor *got, const Tensor *wanted,
                          Difference *difference);
/* Whether the weights are there; an error that names who would need them if not. */
bool verification_has_tensors(const Verification *v, const char *who);
/* Against the same model in f32; what is found is printed or reported. */
void verify_f32(const Verification *v);

#endif

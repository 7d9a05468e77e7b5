/* Engine: what computes the outputs of a graph: code compiled now, code of a library, or the reference interpreter.
 *
 * In: a graph, the weights, inputs. Out: the outputs, as often as wanted. Everything that does not depend on the inputs
 * is done when the engine is made. One row of `engines` per engine: the verbs know nothing else of them. */
#ifndef TFM_DRIVER_ENGINE_H
#define TFM_DRIVER_ENGINE_H

#include "driver/session.h"
#include "driver/weight_source.h"
#include "graph/eval.h"

typedef struct Engine Engine;

typedef struct EngineKind {
  const char *name; /* what --engine= takes */
  /* The graph becomes the engine's. NULL after an error. */
  Engine *(*create)(Session *session, Graph *graph, WeightSource *weights);
  /* Computes all outputs; their memory is the engine's until the next run, or in the session's arena. */
  bool (*run)(Engine *engine, const EvalInputs *inputs, Tensor *outputs);
  void (*destroy)(Engine *engine);
} EngineKind;

struct Engine { /* the first member of what each engine keeps */
  const EngineKind *kind;
  Session *session;
  const struct tfm_program *program; /* compiled code, and what runs it; NULL: it is interpreted */
  struct tfm_context *context;
  bool reuses_outputs; /* for who times runs: outputs that an earlier run filled get the new values where they are */
};

extern const EngineKind engine_native, engine_reference, engine_library;
extern const EngineKind engine_ragged; /* native or a library, for graphs with ragged sizes; engine_create_kind chooses it */

/* The engine of --engine, or that of session->library. NULL after an error; else engine_destroy when done. */
Engine *engine_create(Session *session, Graph *graph, WeightSource *weights);
Engine *engine_create_kind(const EngineKind *kind, Session *session, Graph *graph, WeightSource *weights);
/* The same, but that batches with items of different sizes are not taken apart. */
Engine *engine_create_whole(const EngineKind *kind, Session *session, Graph *graph, WeightSource *weights);
bool engine_run(Engine *engine, const EvalInputs *inputs, Tensor *outputs);
void engine_destroy(Engine *engine); /* NULL is ignored */

#endif

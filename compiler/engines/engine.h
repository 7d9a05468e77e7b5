/* Engine: what computes the outputs of a graph: code compiled now, code of a library, or the reference interpreter.
 *
 * In: a graph, its weights, inputs. Out: the outputs, as often as wanted. Everything that does not depend on the
 * inputs is done when the engine is made. Each engine is one EngineKind; the commands know nothing else of them.
 * Errors go to the diag of the settings. */
#ifndef TFM_ENGINES_ENGINE_H
#define TFM_ENGINES_ENGINE_H

#include "compile/library_model.h"
#include "engines/weight_source.h"
#include "tfm/compile.h"
#include "tfm/tfm.h"

typedef struct EngineSettings {
  CompileRequest compile; /* how code is made, but for its target, weights and cache; its arena and diag serve all */
  const char *march;          /* the instruction set, "native" for the best of this CPU */
  int32_t threads;            /* 0: as many as the process may use */
  Derivation *derived;        /* the incremental form of the model; NULL: it was not derived */
  const LibraryFile *library; /* what is run is this library; NULL: it is a graph that is compiled now */
  const ModelText *text;      /* of the library */
  const char *version;        /* of this compiler, for messages about libraries */
  void (*print)(const StrBuf *text); /* takes what a report says of memory; NULL: nobody asks */
} EngineSettings;

typedef struct Engine Engine;

typedef struct EngineKind {
  const char *name; /* what --engine= takes */
  /* The graph becomes the engine's. NULL after an error. */
  Engine *(*create)(const EngineSettings *settings, Graph *graph, WeightSource *weights);
  /* Computes all outputs; their memory is the engine's until the next run, or in the arena. */
  bool (*run)(Engine *engine, Arena *arena, const EvalInputs *inputs, Tensor *outputs);
  void (*destroy)(Engine *engine);
} EngineKind;

struct Engine { /* the first member of what each engine keeps */
  const EngineKind *kind;
  const EngineSettings *settings;
  const struct tfm_program *program; /* compiled code, and what runs it; NULL: it is interpreted */
  struct tfm_context *context;
  const uint8_t *forms; /* of the inputs, a tfm_form each; NULL: all are as their type says */
  bool reuses_outputs; /* when runs are timed: outputs that an earlier run filled get the new values where they are */
};

extern const EngineKind engine_native, engine_reference, engine_library;

/* The settings must outlive the engine. A graph with ragged sizes gets, around compiled code, an engine that takes
 * batches apart. NULL after an error; else engine_destroy when done. */
Engine *engine_create(const EngineKind *kind, const EngineSettings *settings, Graph *graph, WeightSource *weights);
bool engine_run(Engine *engine, Arena *arena, const EvalInputs *inputs, Tensor *outputs);
void engine_destroy(Engine *engine); /* NULL is ignored */

// ---- what the engines of compiled code share ----

/* EngineKind.run for an engine whose program and context are set. Outputs are allocated in `arena`, unless
 * reuses_outputs finds room for them. */
bool compiled_run(Engine *engine, Arena *arena, const EvalInputs *inputs, Tensor *outputs);
tfm_context_options context_options(const EngineSettings *settings);
/* What is asked of the compiler: the settings, with a target that this CPU can run, the weights, and the cache of
 * code that the environment names. False after an error. */
bool engine_request(const EngineSettings *settings, WeightSource *weights, CompileRequest *request);
/* Reports an error of the runtime at the place that it names, with the code of its status or reason. */
void report_runtime_error(Diag *diag, const tfm_error *error);
typedef struct OpenLibrary {
  tfm_model *model;   /* NULL: it is not open */
  tfm_compiled *file; /* of a .tfmm file, which holds the model; else NULL */
} OpenLibrary;

/* The model of settings->library with its weights: the packed ones beside or in it, or `weights`, packed now; of a
 * .tfmm file always its own. The graph becomes the library's. False after an error; the caller closes it then, too. */
bool library_open(const EngineSettings *settings, Graph *graph, WeightSource *weights, OpenLibrary *library);
void library_close(OpenLibrary *library);

#endif

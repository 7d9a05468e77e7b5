/* Compile: the one way from a model to code.
 *
 * In: a graph as the elaborator made it, and a request: the instruction set, the options of the passes, where
 * weights come from. Out, as far as it is wanted: the graphs that are computed (the model itself, and its
 * incremental form, which is derived once), their plans, which share one block of packed weights, and programs with
 * code in this process.
 *
 * Nothing here knows a command line, a file or a terminal. Errors go to the request's diag. */
#ifndef TFM_COMPILE_COMPILE_MODEL_H
#define TFM_COMPILE_COMPILE_MODEL_H

#include "aot/packed_weights.h"
#include "graph/eval.h"
#include "jit/jit.h"
#include "weights/pack.h"

/* The incremental form of a model with what was found out on the way. */
typedef struct Derivation {
  Incremental parts; /* not fused at first; compile_fuse_parts does that. `step` NULL: there is none */
  PassLog log;
} Derivation;

typedef struct CompileRequest {
  Arena *arena;
  Diag *diag;
  const TargetInfo *target;
  PassOptions passes;
  /* Gets the graph that does the work, after its passes, and the log of how it came about; false ends the compilation.
   * Of a model of which only a decoder is wanted that graph is the step. NULL: nobody asks. */
  bool (*report)(void *context, Graph *graph, const PassLog *log);
  void *report_context;
  WeightReader weights;   /* zeroed: all weights are 0, to be filled in by the caller */
  const CodeCache *cache; /* NULL: code is generated anew */
} CompileRequest;

// ---- graphs ----

/* Leaves the graph as it is. A model that is not incremental, or has no generate block, gets a derivation without a
 * step. */
Derivation *compile_derive(const CompileRequest *request, const Graph *graph);
/* Runs the passes and reports. What was derived comes first in the report; `derived` may be NULL. */
bool compile_fuse(const CompileRequest *request, Graph *graph, const Derivation *derived);
typedef enum DerivedPart { DERIVED_NONE, DERIVED_ENCODER, DERIVED_STEP } DerivedPart;

/* The same for the graphs of the incremental form. One of them is reported and printed between passes, or none. */
bool compile_fuse_parts(const CompileRequest *request, Derivation *derived, DerivedPart reported);

// ---- plans and weights ----

/* Plans of fused graphs, which share their packed weights. `forward` or the step may be NULL. False after an error. */
bool compile_plans(const CompileRequest *request, Graph *forward, const Incremental *parts, LibraryPlans *plans);
/* Packs the weights of all plans to `packed`: zeroes, weights_bytes long, 64-byte aligned. False after an error. */
bool compile_pack_to(const CompileRequest *request, const LibraryPlans *plans, char *packed);
/* The same in memory of its own, to be freed. NULL after an error. */
char *compile_pack(const CompileRequest *request, const LibraryPlans *plans);

// ---- code ----

typedef struct Compiled {
  LibraryPlans plans;
  char *packed;               /* the weights of all programs */
  Jit *forward_code, *step_code, *encoder_code;
  const tfm_program *forward; /* NULL: not wanted */
  tfm_decoding decoding;      /* `step` NULL: not wanted, or the model is not incremental */
} Compiled;

/* The whole way for the outputs of a graph, which becomes the compiler's. `derived`: as of compile_fuse. False after an
 * error; there is nothing to free then. */
bool compile_forward(const CompileRequest *request, Graph *graph, const Derivation *derived, Compiled *compiled);
/* The whole way for writing token by token. `derived->parts.step` is not NULL; its graphs become the compiler's. */
bool compile_decoder(const CompileRequest *request, Derivation *derived, Compiled *compiled);
void compiled_free(Compiled *compiled);

// ---- instruction sets ----

/* The target of a name, "native" for the best of this CPU. `must_run`: this CPU has to be able to run it. NULL after an
 * error. */
const TargetInfo *compile_target(Diag *diag, const char *name, bool must_run);

#endif

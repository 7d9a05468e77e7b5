/* Programs that tests compile and run.
 *
 * In: graphs and plans, each with the arena and the messages of its test. Out: code, packed weights, tensors. A function
 * here fails the test and prints the first message when the compiler refuses. */
#ifndef TFM_TESTS_COMPILED_MODEL_H
#define TFM_TESTS_COMPILED_MODEL_H

#include "graph/eval.h"
#include "jit/jit.h"
#include "plan/decoding.h"
#include "tfm/types.h"

/* One block with the weights of all plans, which get their places in it: before their code is made. `find` NULL: all are 0.
 * To be freed. */
char *packed_weights(Arena *arena, Diag *diag, Plan *const *plans, uint32_t n, WeightLookup find, void *context);
Jit *jit_of(Arena *arena, Diag *diag, const Plan *plan);
void optimize(Diag *diag, Graph *graph); /* all passes */

/* A model in its incremental form. */
typedef struct CompiledDecoding {
  const DecodingPlan *plans;
  Jit *source, *step; /* source: NULL if there is none */
  char *packed;       /* weights of both */
  tfm_decoding decoding;
} CompiledDecoding;

/* False if the model is not incremental. The graph stays as it is. */
bool decoding_compile(CompiledDecoding *made, Arena *arena, Diag *diag, Graph *graph, const TargetInfo *target,
                      WeightLookup find, void *context);
void decoding_free(CompiledDecoding *made);

int64_t value_elements(const tfm_value *value);
/* Zeroes for the inputs of a plan with these sizes. */
void zero_inputs(Arena *arena, const Plan *plan, const int64_t *symbols, tfm_value *inputs);

#endif

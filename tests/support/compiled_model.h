/* Programs that tests compile and run.
 *
 * In: graphs and plans, each with the arena and the messages of its test. Out: code, packed weights, tensors. A
 * function here fails the test and prints the first message when the compiler refuses. */
#ifndef TFM_TESTS_COMPILED_MODEL_H
#define TFM_TESTS_COMPILED_MODEL_H

#include "compile/compile_model.h"
#include "tfm/types.h"

/* Compiles the graph, which the compiler takes over, after these passes. `find` NULL: all weights are 0. The caller
 * frees the result. */
Compiled compiled_forward(Arena *arena, Diag *diag, Graph *graph, const PassOptions *passes, const TargetInfo *target,
                          WeightLookup find, void *context);
/* The incremental form of a model, after all passes. False if it has none. The graph stays as it is. */
bool compiled_decoding(Compiled *made, Arena *arena, Diag *diag, Graph *graph, const TargetInfo *target,
                       WeightLookup find, void *context);

int64_t value_elements(const tfm_value *value);
/* Zeroes for the inputs of a plan with these sizes. */
void zero_inputs(Arena *arena, const Plan *plan, const int64_t *symbols, tfm_value *inputs);

#endif

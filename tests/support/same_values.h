/* Whether two graphs compute the same outputs, by the reference interpreter, on small random inputs and weights.
 *
 * In: the graph before and after a rewriting. Out: true, or false and where they differ. Weights and inputs depend on
 * their names only, so both graphs see the same ones. */
#ifndef TFM_TESTS_SAME_VALUES_H
#define TFM_TESTS_SAME_VALUES_H

#include "graph/eval.h"

typedef struct RandomWeights {
  Arena *arena;
  const Graph *graph;
  Map made;
} RandomWeights;

uint64_t random_next(uint64_t *state);
/* A weight of the graph; `context` is RandomWeights. */
const Tensor *random_weight(void *context, const char *name);
/* The values of the run-time sizes in such runs: batch = 2, the others small too. */
void choose_sizes(const Graph *graph, int64_t *values);
/* The outputs by the reference interpreter, with the weights of `weights_of`; NULL after a message. */
Tensor *random_outputs(Arena *arena, Diag *diag, Graph *graph, const Graph *weights_of);
double element_of(const Tensor *tensor, int64_t i);
bool near(double got, double want); /* equal but for rounding; NaN is near NaN */
/* `before` knows all weights that `after` may ask for. */
bool same_values(Arena *arena, Graph *before, Graph *after);

#endif

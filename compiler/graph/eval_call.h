/* EvalCall: what a run of the interpreter is asked for: the graph, where weights come from, the inputs, sizes that no
 * input has, and who else is to be called. See eval.h. */
#ifndef TFM_GRAPH_EVAL_CALL_H
#define TFM_GRAPH_EVAL_CALL_H

#include "graph/graph.h"

/* Finds a weight by its name; the tensor stays with its owner. NULL after reporting an error. */
typedef const Tensor *(*WeightLookup)(void *context, const char *name);

typedef struct EvalInputs {
  const char *const *names; /* of inputs, and "time.lengths" for ragged sizes */
  const Tensor *tensors;
  uint32_t n;
} EvalInputs;

/* Called with the value of each node once it is computed; with ragged sizes once for each item. The value is valid only
 * during the call. */
typedef void (*EvalObserver)(void *context, const Node *node, const Tensor *value);

/* Computes one item of a ragged batch, or a whole batch that has no items, in place of the interpreter. The inputs are
 * in the order of graph->inputs; checks and ids hold already. The function must keep the memory of its outputs until
 * the next call. */
typedef bool (*EvalItem)(void *context, const Tensor *const *inputs, Tensor *outputs);

typedef struct EvalSize {
  const char *name;
  int64_t value;
} EvalSize;

typedef struct EvalOptions {
  EvalObserver observer; /* NULL: none */
  void *observer_context;
  const EvalSize *sizes; /* of run-time sizes that no input need have in its shape; names the graph lacks are ignored */
  uint32_t n_sizes;
  EvalItem item; /* NULL: items are interpreted; else no weights are asked for */
  void *item_context;
} EvalOptions;

typedef struct EvalCall {
  Graph *graph;
  WeightLookup weights; /* NULL: the graph has none, or `options.item` computes */
  void *weights_context;
  const EvalInputs *inputs;
  EvalOptions options;
} EvalCall;

#endif

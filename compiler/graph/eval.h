/* Eval: the reference interpreter of graphs, slow plain C, the oracle of every numeric test and of `tfmc verify`.
 *
 * It shares no code with the kernels, so that a mistake in one shows as a difference: each operation is computed as its
 * definition says, in double, and rounded to f32 at the end. With ragged sizes each item is computed alone, and the
 * results are put together with zeros between them. */
#ifndef TFM_GRAPH_EVAL_H
#define TFM_GRAPH_EVAL_H

#include "graph/graph.h"

typedef struct Tensor {
  DType dtype;
  uint32_t rank;
  int64_t dims[MAX_RANK];
  void *data; /* row-major; f32, i32 or uint8_t (0 or 1) */
} Tensor;

/* Finds a weight by its name; the tensor stays with its owner. NULL after reporting an error. */
typedef const Tensor *(*WeightLookup)(void *context, const char *name);

typedef struct EvalInputs {
  const char *const *names; /* of inputs, and "time.lengths" for ragged sizes */
  const Tensor *tensors;
  uint32_t n;
} EvalInputs;

int64_t tensor_elements(const Tensor *tensor);
Tensor *tensor_new(Arena *arena, DType dtype, uint32_t rank, const int64_t *dims);
/* The same for a tensor that the user knows: `kind` "input", `name` "x". A message names it if there is no memory. */
Tensor *tensor_new_named(Arena *arena, const char *kind, const char *name, DType dtype, uint32_t rank,
                         const int64_t *dims);

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

/* Computes all outputs into arena memory, in the order of graph->outputs. Checks inputs (names, types, shapes, sizes
 * that differ, ids) and the graph's checks with the messages of the golden cases. False after an error. */
bool graph_eval(Arena *arena, Diag *diag, Graph *graph, WeightLookup weights, void *context, const EvalInputs *inputs,
                Tensor *outputs);
bool graph_eval_with(Arena *arena, Diag *diag, Graph *graph, WeightLookup weights, void *context,
                     const EvalInputs *inputs, const EvalOptions *options, Tensor *outputs);
/* Whether the tensor given as "time.lengths" has one length for each of `items` items; the values are not looked at.
 * `batch`: the name of the size that counts the items. */
bool eval_check_lengths(Arena *arena, Diag *diag, const char *name, const char *batch, int64_t items,
                        const Tensor *given);
/* The value of one static node (node_is_static): constants and weights only. NULL after an error. */
Tensor *graph_eval_static(Arena *arena, Diag *diag, const Graph *graph, const Node *node, WeightLookup weights,
                          void *context);

#endif

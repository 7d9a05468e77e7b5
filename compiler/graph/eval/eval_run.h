/* EvalRun: what the files of the reference interpreter share. Nothing outside of graph/ needs it.
 *
 * From the ground up: eval_data.c, eval_pointwise.c, eval_along.c, eval_sums.c, eval_run.c, eval.c. A rule
 * computes the value of one node. Before it is called, the shapes of all operands were checked against each other with
 * their actual sizes, and the result has its memory. It returns false after reporting an error. */
#ifndef TFM_GRAPH_EVAL_RUN_H
#define TFM_GRAPH_EVAL_RUN_H

#include "graph/eval_call.h"
#include "graph/infer.h"

typedef struct EvalValue {
  Tensor tensor;
  bool owned;     /* by the run; else by the caller, who gave the weights and inputs */
  uint32_t uses;  /* that are still to come */
  Node *concrete; /* the node with its actual sizes as constants, for infer_node */
} EvalValue;

typedef struct EvalRun {
  Arena *scratch;     /* as long as the run */
  SizeTable *numbers; /* constants in scratch */
  Diag *diag;
  const Graph *graph;
  WeightLookup weights;
  void *context;
  EvalOptions options;
  const Tensor *const *inputs; /* in the order of graph->inputs */
  int64_t symbols[SIZE_MAX_SYMBOLS];
  bool bound[SIZE_MAX_SYMBOLS];
  EvalValue *values;     /* by id */
  Tensor
      *probabilities; /* by id: of an ATTENTION whose ATTENTION_WEIGHTS are needed; also parts of gradients */
} EvalRun;

typedef struct EvalNode {
  EvalRun *run;
  const Node *node;
  const Tensor *const *inputs;
} EvalNode;

// ---- eval_data.c: the ground ----

/* All indexes of a shape in row-major order. */
typedef struct Grid {
  uint32_t rank;
  int64_t dims[MAX_RANK];
  int64_t index[MAX_RANK];
  int64_t points;
} Grid;
Grid grid_of(uint32_t rank, const int64_t *dims);
void grid_next(Grid *grid);
/* Strides of a tensor of these dims, each element of which has `inner` numbers, in a domain of `rank` axes: aligned at
 * the last, 0 where it broadcasts. */
void broadcast_strides(uint32_t own_rank, const int64_t *dims, int64_t inner, uint32_t rank, int64_t *strides);
int64_t grid_offset(const Grid *grid, const int64_t *strides);

/* Memory for a tensor whose dtype, rank and dims are set; to be freed with free(). */
bool eval_allocate(EvalRun *run, const Node *node, Tensor *tensor);
/* Reports an error of the run at the node; returns false. */
bool eval_fault(const EvalNode *in, DiagCode code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The value of a size that was checked before. */
int64_t eval_size(const EvalRun *run, const Size *size);
/* The value of any size in this run; NULL or why it has none. */
const char *eval_size_fault(const EvalRun *run, const Size *size, int64_t *value);

// ---- eval_pointwise.c ----

typedef struct RowOperand {
  const void *data;
  int64_t stride; /* in elements: 0 or 1 */
} RowOperand;
/* One pointwise operation on n elements; `dtype` is that of the operands, for where of the last two. False: an integer
 * was divided by zero. */
bool eval_row(OpKind op, DType dtype, const RowOperand *args, int64_t n, void *out);
bool eval_elementwise(const EvalNode *in, Tensor *out);
/* The expression of a fused node over the shape of `out`; acc has that shape too, or is NULL. */
bool eval_expr(const EvalNode *in, const Tensor *acc, Tensor *out);

// ---- eval_data.c: rules ----

bool eval_input(const EvalNode *in, Tensor *out);  /* these two set out->data to what was given */
bool eval_weight(const EvalNode *in, Tensor *out);
bool eval_full(const EvalNode *in, Tensor *out);
bool eval_size_node(const EvalNode *in, Tensor *out);
bool eval_positions(const EvalNode *in, Tensor *out);
bool eval_causal_mask(const EvalNode *in, Tensor *out);
bool eval_sinusoid(const EvalNode *in, Tensor *out);
bool eval_rotary(const EvalNode *in, Tensor *out);
bool eval_rotary_table(const EvalNode *in, Tensor *out);
bool eval_slice(const EvalNode *in, Tensor *out);
bool eval_reshape(const EvalNode *in, Tensor *out);
bool eval_permute(const EvalNode *in, Tensor *out);
bool eval_concat(const EvalNode *in, Tensor *out);
bool eval_round_to(const EvalNode *in, Tensor *out);
/* Whether all numbers of a weight are finite, which its form of 8 bits asks for; false after reporting one that is
 * not. */
bool eval_are_finite(const EvalNode *in, const Tensor *w);
bool eval_gather(const EvalNode *in, Tensor *out);

// ---- eval_along.c ----

bool eval_take(const EvalNode *in, Tensor *out);
bool eval_every(const EvalNode *in, Tensor *out);
bool eval_cumsum(const EvalNode *in, Tensor *out);
bool eval_shift(const EvalNode *in, Tensor *out);
bool eval_topk(const EvalNode *in, Tensor *out);
bool eval_scatter(const EvalNode *in, Tensor *out);
bool eval_places(const EvalNode *in, Tensor *out);
bool eval_power(const EvalNode *in, Tensor *out);

// ---- eval_sums.c ----

void reduce_tensor(OpKind reduction, uint32_t axis, const Tensor *x, Tensor *out);
/* w, b: NULL if there are none. */
void norm_tensor(OpKind norm, double eps, const Tensor *x, const Tensor *w, const Tensor *b, Tensor *out);
bool eval_reduce(const EvalNode *in, Tensor *out);
bool eval_norm(const EvalNode *in, Tensor *out);
bool eval_matmul(const EvalNode *in, Tensor *out);
bool eval_linear(const EvalNode *in, Tensor *out);
bool eval_pointwise_node(const EvalNode *in, Tensor *out);
bool eval_reduce_node(const EvalNode *in, Tensor *out);
bool eval_norm_node(const EvalNode *in, Tensor *out);
bool eval_attention(const EvalNode *in, Tensor *out);
bool eval_linear_attention(const EvalNode *in, Tensor *out); /* these two: eval_state.c */
bool eval_linear_attention_grad(const EvalNode *in, Tensor *out);
bool eval_attention_weights(const EvalNode *in, Tensor *out);
bool eval_attention_kept(const EvalNode *in, Tensor *out);
bool eval_attention_grad(const EvalNode *in, Tensor *out);
bool eval_row_grad(const EvalNode *in, Tensor *out);
bool eval_second_result(const EvalNode *in, Tensor *out);

// ---- eval_run.c ----

/* Rows that are not live become 0 if the node says so, else NaN, so that a pass that was wrong about them shows in the
 * outputs. `out` has the shape of the result. */
void eval_spoil_rows(const EvalNode *in, Tensor *out);
EvalRun *eval_run_new(Arena *scratch, Diag *diag, const Graph *graph);
/* Whether the graph's checks hold for the sizes of this run. */
bool eval_checks(EvalRun *run);
/* Which nodes, by id, the outputs need. */
bool *eval_needed(Arena *arena, const Graph *graph);
bool eval_outputs(EvalRun *run, Tensor *outputs, Arena *arena);
/* Checks the ids that come from inputs; `first` is added to the first coordinate in messages. */
bool eval_check_ids(const EvalRun *run, const bool *needed, int64_t first);

// ---- eval_ragged.c ----

bool eval_items(EvalRun *whole, const EvalInputs *inputs, const bool *needed, Arena *arena, Tensor *outputs);

#endif

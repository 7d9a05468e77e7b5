/* Planner: the state of planning, and what the files of plan/ do for each other. Private to plan/.
 *
 * In: the graph, node by node in list order. Out: for each live node that is not a view, the layout of its result and
 * the steps that write it. Views, inputs and static subgraphs are resolved when a step first asks for them, so those
 * that nothing asks for cost nothing. Refusals go to the diag, at the node's span. The planner lives on plan_graph's
 * stack; everything that the plan keeps is in its arena. */
#ifndef TFM_PLAN_PLANNER_H
#define TFM_PLAN_PLANNER_H

#include "plan/layout.h"
#include "plan/planned.h"

/* Rows of whole numbers, for LINEARs of int8, of int4, and of mixed forms. */
typedef enum RowsOfWhole { ROWS_WHOLE, ROWS_GROUPED, ROWS_MIXED, N_ROWS_OF_WHOLE } RowsOfWhole;

typedef struct Value {
  bool is_live, is_static;
  bool is_prepare; /* depends on run-time sizes alone */
  bool has_view, has_compact, has_weights_view, has_whole_rows[N_ROWS_OF_WHOLE];
  uint64_t serves;   /* as in tfm_step; ALL_RUNS: every run needs it, whatever outputs are wanted */
  View view;
  View compact;      /* a copy whose rows have one static stride */
  View weights_view; /* ATTENTION: the probabilities */
  View whole_rows[N_ROWS_OF_WHOLE]; /* rows of whole numbers (tfm_quantize_step) */
} Value;

#define ALL_RUNS UINT64_MAX

typedef struct PagedValue PagedValue; /* caches.c */

typedef struct Planner {
  Plan *plan;
  Arena *arena;
  Diag *diag;
  Graph *graph;
  const TargetInfo *target;
  SizeMath math;
  Value *values;    /* by node id */
  VEC(const Node *) inputs;  /* of the program: those of the graph that do not lie in pages */
  VEC(GraphOutput) outputs;
  uint32_t *stand_ins; /* as in tfm_tensor_info, of the outputs */
  VEC(PagedValue) paged;
  const Node *node; /* being planned: messages have its span, names of steps its path */
  bool prepare;     /* whether steps and buffers made now are prepared ones */
  bool may_write_outputs; /* no step from here on can report a fault, after which outputs would have to be untouched */
  Map polynomials, kernels, recipes, id_checks;
  VEC(tfm_term) terms;
  VEC(tfm_polynomial) polynomial_list;
  VEC(tfm_floor) floors;
  uint8_t floor_numbers[SIZE_MAX_FLOORS]; /* by floor of the graph: 1 + its number in the program; 0: none yet */
  VEC(tfm_buffer) buffers;
  VEC(tfm_step) steps;
  VEC(tfm_operand) operands;
  VEC(tfm_live_rows) live;
  VEC(tfm_row_chain) row_chains;
  uint32_t first_safe_step; /* from there on no step can report a fault */
#define STEP(KIND, name, array, ...) VEC(tfm_##name##_step) array;
#include "tfm/abi/steps.def"
  VEC(tfm_cache) caches;
  VEC(tfm_id_limit) id_limits;
  VEC(tfm_fault_place) fault_places;
  VEC(tfm_check) checks;
  VEC(tfm_condition) conditions;
  VEC(tfm_message_part) parts;
} Planner;

// ---- program.c: polynomials ----

tfm_size plan_size(Planner *p, const Size *size);
/* False if the size depends on run-time sizes. */
bool plan_static_size(const Planner *p, tfm_size size, int64_t *value);
/* Returns size * numerator / denominator, coefficient by coefficient, rounded up: for estimates. */
tfm_size plan_scaled(Planner *p, const Size *size, int64_t numerator, int64_t denominator);

// ---- plan_values.c: memory of results ----

uint32_t plan_buffer(Planner *p, DType dtype, const Size *elements);
/* The layout of a result of this shape: rows of f32 whose length is static are padded (cost_row_stride). */
View layout_default(Planner *p, DType dtype, uint32_t rank, const Size *const *dims);
/* A new buffer with that layout. */
View layout_new(Planner *p, DType dtype, uint32_t rank, const Size *const *dims);
/* Whether a step can write a result with this layout. */
typedef bool (*LayoutTest)(Planner *p, const View *view);
bool layout_has_columns(Planner *p, const View *view);
bool layout_has_rows(Planner *p, const View *view); /* columns, and one stride between all rows */
/* Chooses where `node` writes its result: where its only user wants it if that layout passes the test, else in
 * `fallback` (NULL: the default layout). */
View layout_result(Planner *p, const Node *node, LayoutTest test, const View *fallback, const Size *fallback_elements);

/* Where the value of a node lies. */
void plan_set_view(Planner *p, const Node *node, const View *view);
/* Of the panels of a LINEAR's static weight: the fewest bits that hold what it multiplies with. */
tfm_form plan_form(const Node *product);
uint32_t plan_weight(Planner *p, const Node *node, WeightLayout layout, uint32_t width, tfm_form form);

// ---- plan_views.c: views, copies, ids ----

/* Returns where the value of a node lies. Static subgraphs become weights; a view that strides cannot express becomes a
 * copy, for which a step is added. */
View plan_view(Planner *p, const Node *node);
/* The same, with neighbouring columns and one static stride between all rows (all_rows) or along the axis before the
 * last: the value itself, or a copy that later users share. Tiles need this, because their strides are constants of the
 * code. `columns` is the size of the last axis. */
View plan_compact(Planner *p, const Node *node, bool all_rows, int64_t columns);
/* The view of the factor of a product that is packed when it runs: an input in 16 bits is read as it is given. */
View plan_packed_factor(Planner *p, const Node *node);
/* The view of a table that rows are taken from: in 16 bits if these hold it. */
View plan_gathered(Planner *p, const Node *node);
/* Whether rows of a table must be unpacked before anything reads them; the step for it, and where it puts them. */
bool plan_is_packed(const Planner *p, const Node *table);
View plan_look_up(Planner *p, const Node *table, const View *ids);
/* A step that copies `from` to `to`. */
void plan_copy(Planner *p, const View *from, const View *to, const char *operation);
/* For every gather in the node's expression: adds a limit of the input that holds the ids, or a step that checks ids
 * which are computed. */
void plan_check_gathers(Planner *p, const Node *node);
/* The same for ids that a node other than a gather reads elements by. */
void plan_check_ids(Planner *p, const Node *user, const Node *ids, const Size *limit);
/* Whether the ids of a TAKE could lie outside of the axis. */
bool plan_needs_check(const Node *take);
/* Whether computing the node can report a fault. Outputs must be untouched after a run that failed, so nothing writes
 * into the caller's memory before the last such node. */
bool plan_can_fail(Planner *p, const Node *node);

// ---- program.c: kernels, operands, steps ----

uint32_t plan_kernel(Planner *p, const KernelSpec *spec);
/* When all steps are planned: tiles that no product cuts have no code for a part of their columns. */
void plan_whole_tiles(Planner *p);
tfm_operand plan_operand(Planner *p, const View *view); /* strides 0 */
/* Notes that the step which is about to be added uses this memory: a buffer lives from its first use to its last. */
void plan_use(Planner *p, uint8_t space, uint32_t index);
void plan_step(Planner *p, tfm_step_kind kind, size_t index, tfm_size work, const char *operation);
/* "model.tfm:12:5" in the arena; NULL if the node has no place. */
const char *plan_place(Planner *p, const Node *node);
void plan_fault_places(Planner *p);
void plan_limit(Planner *p, const char *what);

// ---- one function per operation ----

void plan_pointwise(Planner *p, const Node *node);
/* Whether the graph is of a step of training: what would make many subnormal numbers, which are slow, drops them. */
bool plan_drops_small(const Planner *p);
void plan_reduce(Planner *p, const Node *node);
void plan_norm(Planner *p, const Node *node);
void plan_row_grad(Planner *p, const Node *node);
void plan_concat(Planner *p, const Node *node);
void plan_linear(Planner *p, const Node *node);
void plan_matmul(Planner *p, const Node *node);
/* Whether it is a product with ones on and below the diagonal, 0 above: computed as running sums (plan_rows.c). */
bool plan_is_triangle(const Planner *p, const Node *node);
void plan_triangle(Planner *p, const Node *node);
void plan_attention(Planner *p, const Node *node);
void plan_attention_kept(Planner *p, const Node *node);
void plan_attention_grad(Planner *p, const Node *node);
void plan_table(Planner *p, const Node *node);
void plan_along(Planner *p, const Node *node);
void plan_scatter(Planner *p, const Node *node);
/* Whether the result lies where a gradient is wanted, and may be added to what is there. */
bool plan_is_gradient(const Planner *p, const View *c);
/* Of a scatter: the ids as the model has them, before they were made a line. */
const Node *plan_scattered_ids(const Node *scatter);
void plan_linear_attention(Planner *p, const Node *node);
void plan_linear_attention_grad(Planner *p, const Node *node);
void plan_every(Planner *p, const Node *node);
/* A REDUCE of i32, of which `x` has the elements and the domain's axes; `result`: the same with a 1 at the axis. */
void plan_integer_reduce(Planner *p, OpKind reduction, uint32_t axis, const View *x, const View *result);

void plan_outputs(Planner *p);
void plan_checks(Planner *p);
void plan_ranges(Planner *p);
tfm_tensor_info plan_tensor_info(Planner *p, const char *name, const Node *node);

#endif

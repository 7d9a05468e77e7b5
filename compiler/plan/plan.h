/* Plan: what is executed: steps over buffers, kernels by specification, weights by recipe.
 *
 * In: a fused graph (passes) and a TargetInfo. Out: a Plan whose `program` is complete but for the addresses of the
 * kernels, the list of kernels to generate, and for each packed weight the recipe that makes it. Everything lives in
 * the arena, and the plan refers to the graph, which must live as long. Refused: what the runtime has no room for,
 * reported (DIAG_LIMIT) at the node's span. */
#ifndef TFM_PLAN_PLAN_H
#define TFM_PLAN_PLAN_H

#include "draw/drawing.h"
#include "plan/kernel_spec.h"
#include "target/target.h"
#include "tfm/abi/drivers.h"
#include "tfm/abi/program.h"

typedef enum WeightLayout {
  WEIGHT_PLAIN,  /* row-major, as the node's shape and dtype say */
  WEIGHT_PANELS  /* [n / width][k][width] from a node [n, k], zero-padded: B of a gemm */
} WeightLayout;

typedef struct WeightRecipe {
  const Node *node;    /* a static subgraph of the graph that was planned: its value is what is packed */
  WeightLayout layout;
  uint32_t width;      /* PANELS */
  uint8_t form;        /* tfm_form; of PLAIN F32, as the node is, or 16 bits, one number after the other */
  uint64_t offset, bytes;
  bool is_shared;      /* plan_memory.h: another plan's recipe has put the same bytes there */
} WeightRecipe;

typedef struct PlannedKernel {
  KernelSpec spec;
  const char *name; /* symbol of the function: the same for equal specs */
} PlannedKernel;

typedef struct Plan {
  Arena *arena;
  Graph *graph;
  const TargetInfo *target;
  VEC(PlannedKernel) kernels;  /* in the order of program.kernels */
  VEC(WeightRecipe) recipes;   /* in the order of program.weights */
  tfm_program program;         /* kernels NULL */
  uint32_t n_steps[TFM_STEP_KINDS]; /* of each kind */
  /* For people, beside what runs: what each of program.steps and program.buffers was planned for; NULL: for no node. */
  VEC(const Node *) step_nodes, buffer_nodes;
  const Role *input_roles, *output_roles; /* of program.inputs, program.outputs */
} Plan;

/* Returns NULL after an error: a limit of the runtime, reported at the node's place. Renumbers the nodes of the
 * graph. */
Plan *plan_graph(Arena *arena, Diag *diag, Graph *graph, const TargetInfo *target);
/* The drivers that the program needs: bit n stands for number n of tfm_driver_number. This alone chooses what of the
 * runtime a library is linked with, and what a program in memory may call. */
uint32_t plan_drivers(const Plan *plan);
void plan_print(StrBuf *out, const Plan *plan); /* for `dump --stage=plan` */
Drawing *drawing_of_plan(const Plan *plan); /* the steps that run, with what is packed for them */
void plan_print_size(StrBuf *out, const Plan *plan, tfm_size size); /* "128*batch*time" */

#endif

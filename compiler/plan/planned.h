/* Plan: what planning makes, and those read who pack weights, generate kernels, print and emit. See plan.h. */
#ifndef TFM_PLAN_PLANNED_H
#define TFM_PLAN_PLANNED_H

#include "graph/graph.h"
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
  bool may_be_cut;  /* TILE: some product calls it for a part of its columns */
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

#endif

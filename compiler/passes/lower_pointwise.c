/* Pointwise operations and gathers, each as one POINTWISE node.
 *
 * Always legal. Afterwards a graph holds only what plan takes: POINTWISE, REDUCE, NORM, LINEAR, MATMUL, MATMUL_FUSED,
 * ATTENTION, ATTENTION_WEIGHTS, CONCAT, SINUSOID, ROTARY_TABLE, the views SLICE, RESHAPE, PERMUTE, INPUT and WEIGHT;
 * and any operation on weights and constants alone: these are recipes, evaluated before any run. */
#include "passes/pointwise.h"

bool pass_lower_pointwise(Pass *pass) { return pointwise_replace_all(pass, false); }

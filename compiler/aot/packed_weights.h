/* Packed weights: which programs of a library share them, how they are laid out, and the .tfmw file that holds them.
 *
 * In: the plans of one model. Out: the plans in the order in which their weights lie, a hash of that layout, and a
 * file that appears complete or not at all (its format: abi/weights_file.h). The file is read by the runtime; here it
 * is only recognised. Refused: nothing but what the file system refuses. */
#ifndef TFM_AOT_PACKED_WEIGHTS_H
#define TFM_AOT_PACKED_WEIGHTS_H

#include "diag/diag.h"
#include "plan/plan_decoding.h"
#include "tfm/abi/weights_file.h"

// ---- layout ----

enum {
  TRAINING_STEP, /* of an objective: tops, bottoms, and the graphs of its mixture */
  TRAINING_COUNTS,
  TRAINING_VECTORS,
  TRAINING_WHOLE,
  TRAINING_BACK,
  TRAINING_EVALUATE, /* the same without gradients */
  TRAINING_EVALUATE_COUNTS,
  TRAINING_EVALUATE_VECTORS,
  TRAINING_EVALUATE_WHOLE,
  TRAINING_EVALUATE_BACK, /* there is none */
  TRAINING_PACKING, /* three: for each of the plans that library_plan_list gives */
  N_TRAINING_PLANS = TRAINING_PACKING + 3
};

typedef struct LibraryPlans { /* what a library does for one instruction set */
  Plan *forward;                /* NULL: only code for this process can do without it */
  const DecodingPlan *decoding; /* NULL: the model does not generate, or runs all of forward for every token */
  Plan *training[N_TRAINING_PLANS]; /* NULL: the library does not train, or there is no such graph */
} LibraryPlans;

typedef struct PlanList {
  Plan *plans[3];
  uint32_t n;
} PlanList;

/* The plans in the order of their packed weights. The decoding step comes first: it is bound by reading its weights,
 * and those that it has to itself then lie together. */
PlanList library_plan_list(const LibraryPlans *plans);
/* The kernels of all of them, as if they were one plan's, before code refers to any: plans take tiles from each other.
 * Kernels that several plans need stand several times. */
Plan library_kernels(Arena *arena, const LibraryPlans *plans);
/* A hash of every recipe and its offset: equal exactly for libraries that can share a .tfmw file. */
void library_layout(Arena *arena, const LibraryPlans *plans, uint8_t layout[16]);

// ---- the file ----

/* Fills the TFM_WEIGHTS_HEADER_BYTES that stand before the weights. */
void weights_file_header(char *page, const char *model, const uint8_t layout[16], const void *packed, uint64_t bytes);
/* `model` is the prefix of the library's functions. False after an error. */
bool weights_file_write(Diag *diag, const char *path, const char *model, const uint8_t layout[16], const void *packed,
                        uint64_t bytes);
/* Whether the file can be read and begins as .tfmw files do. Reports nothing. */
bool is_packed_file(Arena *arena, const char *path);

#endif

/* What programs that measure share: from a file of this repository to a graph or a plan, and memory for packed weights. */
#ifndef TFM_BENCH_COMPILING_H
#define TFM_BENCH_COMPILING_H

#include "elaborate/elaborate.h"
#include "jit/jit.h"
#include "plan/decoding.h"
#include "weights/weight_set.h"

/* `file` from the root of the sources. NULL after an error. */
Graph *elaborate_file(Arena *arena, Diag *diag, const char *file, const ElaborateOptions *options);
const Plan *plan_file(Arena *arena, Diag *diag, const char *file, const TargetInfo *target, const ElaborateOptions *options);
/* Of a model that writes, in its incremental form; both programs share one block of weights. */
const DecodingPlan *plan_decoding_file(Arena *arena, Diag *diag, const char *file, const TargetInfo *target);
/* Its programs with code that runs. Jits live as long as the program. False after an error. */
bool link_decoding(Arena *arena, Diag *diag, const DecodingPlan *plans, tfm_decoding *decoding);
/* Zeroes, room for the packed weights of a plan on huge pages, to be freed; NULL: no memory. */
char *weights_room(const Plan *plan);
/* The weights of a plan, as its programs want them. False after an error. */
bool pack_set(Arena *arena, Diag *diag, const Plan *plan, const WeightSet *set, char *packed);
void print_messages(const Diag *diag); /* on stderr */

double seconds_now(void);

#endif

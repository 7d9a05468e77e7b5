/* Packing: the plan of a library and its weights in the form that the plan wants, for compile, pack and run. */
#ifndef TFM_DRIVER_PACKING_H
#define TFM_DRIVER_PACKING_H

#include "driver/weight_source.h"
#include "plan/plan.h"

/* "out/libx.so" and ".h" give "out/x.h". */
const char *file_beside(Arena *arena, const char *output, const char *ending);
/* A plan of a graph that went through the passes. Places in it name files from the folder of the model, so that it does
 * not depend on where that lies. NULL after an error. */
const Plan *plan_for_library(Session *session, Graph *graph, const TargetInfo *target);
/* The plan of session->library, made again, with the layout of its weights. NULL after an error. */
const Plan *plan_of_library(Session *session, Graph *graph);
/* All weights, 64-byte aligned, to be freed. NULL after an error. */
char *pack_in_memory(Session *session, const Plan *plan, WeightSource *weights);
/* The .tfmw file of a plan. False after an error. */
bool write_packed(Session *session, const Plan *plan, const char *path, const char *packed);

#endif

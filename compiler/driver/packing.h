/* Packing: weights in the form that plans want, for compile, pack and run. */
#ifndef TFM_DRIVER_PACKING_H
#define TFM_DRIVER_PACKING_H

#include "aot/packed_weights.h"
#include "driver/weight_source.h"

/* "out/libx.so" and ".h" give "out/x.h". */
const char *file_beside(Arena *arena, const char *output, const char *ending);
/* All weights of plans that share them (plan/share_weights.h), to `packed`: zeroes, weights_bytes long, 64-byte aligned. False
 * after an error. */
bool pack_all(Session *session, Plan *const *plans, uint32_t n, WeightSource *weights, char *packed);
/* The same in memory of its own, to be freed. NULL after an error. */
char *pack_in_memory(Session *session, Plan *const *plans, uint32_t n, WeightSource *weights);
char *pack_library(Session *session, const LibraryPlans *plans, WeightSource *weights);
/* The .tfmw file of a library. False after an error. */
bool write_packed(Session *session, const LibraryPlans *plans, const char *path, const char *packed);

#endif

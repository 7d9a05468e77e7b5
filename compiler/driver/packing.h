/* Packing: files with weights in the form that plans want, for compile and pack. */
#ifndef TFM_DRIVER_PACKING_H
#define TFM_DRIVER_PACKING_H

#include "aot/packed_weights.h"
#include "driver/session.h"

/* "out/libx.so" and ".h" give "out/x.h". */
const char *file_beside(Arena *arena, const char *output, const char *ending);
/* The .tfmw file of a library. False after an error. */
bool write_packed(Session *session, const LibraryPlans *plans, const char *path, const char *packed);

#endif

/* What a library says of itself: JSON for tools, and the hash of its weight layout. */
#ifndef TFM_AOT_DESCRIBE_H
#define TFM_AOT_DESCRIBE_H

#include "aot/emit_library.h"

/* {"model", "version", "instruction_sets", "sizes", "inputs", "outputs", "generate", "weights_bytes", "layout", "source"}: deterministic text. */
const char *describe_library(Arena *arena, const LibraryParts *parts);

#endif

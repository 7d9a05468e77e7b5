/* Weights of a model in memory: the mapping of a .tfmw file, bytes of the caller, or what the library holds. */
#ifndef TFM_RUNTIME_WEIGHTS_FILE_H
#define TFM_RUNTIME_WEIGHTS_FILE_H

#include "error.h"
#include "tfm/library.h"
#include "tfm/weights_file.h"

typedef struct Weights {
  const void *packed;
  void *mapping; /* NULL: none */
  size_t mapping_bytes;
} Weights;

/* Maps the file: its header, size and layout must be what the library needs. */
tfm_status weights_map(const tfm_library *library, const char *path, Weights *weights, tfm_error *error);
/* The same for the contents of such a file in memory. */
tfm_status weights_in_memory(const tfm_library *library, const void *bytes, uint64_t size, Weights *weights,
                             tfm_error *error);
void weights_unmap(Weights *weights);

#endif

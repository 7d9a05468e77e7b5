/* Nameless files: memory that another process can read and write. */
#ifndef TFM_API_NAMELESS_H
#define TFM_API_NAMELESS_H

#include <stddef.h>

#include "tfm/tfm.h"

enum { FIRST_DESCRIPTOR = 10 }; /* of ours: they never stand where the child's are put */

/* A new empty file; -1 after a fault. Not inherited. */
int nameless_create(tfm_error *error);
/* Appends. */
tfm_status nameless_write(int file, const void *bytes, size_t size, tfm_error *error);

typedef struct Mapping {
  const char *data; /* read-only; NULL: nothing */
  size_t size;
} Mapping;

/* The whole file, which can no longer be changed by anyone. Empty: data NULL, which is no fault. */
tfm_status nameless_map(int file, Mapping *mapping, tfm_error *error);
void mapping_free(Mapping *mapping);

#endif

/* Bytes: a file as it lies in memory, whoever owns it. */
#ifndef TFM_BASE_BYTES_H
#define TFM_BASE_BYTES_H

#include <stddef.h>

typedef struct Bytes {
  const void *data;
  size_t size;
} Bytes;

typedef struct BytesList {
  const Bytes *items;
  size_t n;
} BytesList;

#endif

/* A judge of GGUF files that shares nothing with the reader: it walks over the bytes by index and compares every pair
 * of tensors. True if a reader must accept the file. Slow for files of many tensors; not for threads: it uses static
 * memory. */
#ifndef TFM_TESTS_ORACLE_GGUF_H
#define TFM_TESTS_ORACLE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool oracle_gguf(const uint8_t *data, size_t size);

#endif

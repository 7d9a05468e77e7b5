/* A judge of npy files that shares nothing with the reader: the header becomes a list of tokens, and rules look at
 * these. True if a reader must accept the file. Not for threads: it uses static memory. */
#ifndef TFM_TESTS_ORACLE_NPY_H
#define TFM_TESTS_ORACLE_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool oracle_npy(const uint8_t *data, size_t size);

#endif

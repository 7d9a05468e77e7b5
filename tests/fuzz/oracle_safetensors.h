/* A judge of safetensors files that shares nothing with the reader: the whole header becomes a tree of JSON values,
 * then every rule is looked at by itself, all pairs compared. Slow, and short enough to be believed. */
#ifndef TFM_TESTS_ORACLE_SAFETENSORS_H
#define TFM_TESTS_ORACLE_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool oracle_safetensors(const uint8_t *data, size_t size);

#endif

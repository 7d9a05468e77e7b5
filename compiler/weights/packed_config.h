/* What a folder's config.json says of weights that are packed in few bits, several to a word.
 *
 * In: the value of `quantization_config`. Out: how words are laid out. Refused, by name: methods that are not read
 * here, numbers of bits that do not divide a word, and settings that change more than how weights are kept, such as
 * activations or caches that are rounded. */
#ifndef TFM_WEIGHTS_PACKED_CONFIG_H
#define TFM_WEIGHTS_PACKED_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

typedef enum PackedMethod {
  PACKED_NONE,       /* weights are not packed */
  PACKED_COMPRESSED, /* compressed-tensors, pack-quantized */
  PACKED_GPTQ,       /* zero points are kept less 1 */
  PACKED_GPTQ_V2,    /* zero points as they are */
  PACKED_AWQ,        /* the layout called gemm */
  PACKED_MXFP4,      /* blocks of 32 numbers, as gpt-oss has them */
} PackedMethod;

typedef struct PackedConfig {
  PackedMethod method;
  int bits;
  int64_t group;     /* columns that share a scale; 0: the config does not say one number, -1: all */
  bool needs_zeros;  /* all weights have zero points */
  bool no_zeros;     /* those that a file has nevertheless say nothing */
  bool needs_order;  /* each weight says which group a column is of */
  const char *fault; /* why it is not read; NULL: it is */
} PackedConfig;

/* `quantized` may be NULL. What is no object of a method that packs is PACKED_NONE; it has a
 * fault if it is of compressed-tensors and asks for more than weights in few bits. */
PackedConfig packed_config(Arena *arena, const json_t *quantized);
/* That of the folder in which `path` lies, or which it is; a config that cannot be read says nothing. */
PackedConfig packed_config_of(Arena *arena, const char *path);

#endif

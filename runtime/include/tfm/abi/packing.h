/* tfm/abi/packing.h: how a library that trains makes the packed weights of its model from parameters. C99.
 *
 * Constant data, made by the compiler from the recipes by which `tfmc pack` does the same. */
#ifndef TFM_PACKING_H
#define TFM_PACKING_H

#include <stdint.h>

enum { TFM_PACKING_GRAPHS = 3 };

#define TFM_PIECE_MADE UINT32_MAX
#define TFM_PIECE_NUMBER (UINT32_MAX - 1)

/* Rows of a packed tensor: element [i][j] is number first + i row_stride + j column_stride of the parameter `source`,
 * or of the block itself (MADE), or it is `number`; times the factors, one by one. */
typedef struct tfm_packed_piece {
  int64_t rows, first, row_stride, column_stride;
  uint32_t source, n_factors;
  float number, factors[4];
} tfm_packed_piece;

typedef struct tfm_packed_tensor { /* panels [rows / width][columns][width]; width 0: [rows][columns] */
  uint64_t offset;
  int64_t columns;
  uint32_t width, first_piece, n_pieces;
} tfm_packed_tensor;

typedef struct tfm_packed_constant { /* bytes that no weight changes: a piece of `constants` */
  uint64_t offset, bytes, from;
} tfm_packed_constant;

typedef struct tfm_packing {
  const tfm_packed_constant *constants;
  const uint8_t *bytes_of_constants;
  const tfm_packed_tensor *tensors;
  const tfm_packed_piece *pieces;
  const uint64_t *places; /* where in the block the outputs of the packing graphs go, one graph after the other */
  const char *refused;    /* why there is none; NULL: there is */
  uint64_t bytes;         /* of the block: the packed weights, then what pieces are made of */
  uint32_t n_constants, n_tensors;
} tfm_packing;

#endif

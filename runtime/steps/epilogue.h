/* Epilogues: the kernels of rows on the results of a product, tile by tile, while they are near.
 *
 * In: a row kernel with its operands, a tile. Out: the tile, changed in place. Refuses nothing. */
#ifndef TFM_RUNTIME_EPILOGUE_H
#define TFM_RUNTIME_EPILOGUE_H

#include "steps/walker.h"

/* A row kernel and its operands, over axes dims[0..rank). As an epilogue it is pointwise and in place: operand 0 is a
 * tile, the part `at` of the results, at `tile` with rows `tile_stride` bytes apart. */
typedef struct Epilogue {
  tfm_row_kernel kernel; /* NULL: none */
  uint8_t rank, n_operands;
  const Operand *operands;
  const tfm_size *dims;
} Epilogue;
Epilogue epilogue_of(const tfm_context *context, uint32_t kernel, uint8_t rank, uint8_t n_operands,
                     uint32_t first_operand, const tfm_size *dims);
void epilogue_run(const Walker *walker, const Epilogue *epilogue, char *tile, int64_t tile_stride, const Region *at);
/* An epilogue whose rows are one axis: what is the same for all tiles of a step, found once. A tile of few numbers
 * would take as long to find it as to compute with it. */
typedef struct EpilogueCall {
  tfm_row_kernel kernel; /* NULL: there is none of this kind */
  uint8_t n_operands;
  tfm_row_args args;
  char *starts[TFM_MAX_OPERANDS];
  int64_t row_steps[TFM_MAX_OPERANDS]; /* 0: rows are chosen by another operand */
} EpilogueCall;
void epilogue_prepare(const Walker *walker, const Epilogue *epilogue, EpilogueCall *call);
void epilogue_call(EpilogueCall *call, char *tile, int64_t tile_stride, const Region *at);
/* Brings nearer what it will read for this tile beside the tile itself. */
void epilogue_fetch(const Walker *walker, const Epilogue *epilogue, const Region *at);

typedef struct RowPlace { /* a row of an outer index, which counts all axes before the row axis as one; a column */
  int64_t outer, row, column;
} RowPlace;
/* Points the arguments from operand number `first` on at that place. */
void row_place_block(const tfm_context *context, tfm_row_args *args, const Epilogue *kernel, uint8_t first,
                     const RowPlace *at);

#endif

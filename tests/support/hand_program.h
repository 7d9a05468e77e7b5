/* Programs made by hand for tests of the runtime: no compiler, kernels are plain C functions.
 *
 * A HandProgram is filled step by step and closed by hand_close; its arrays are inside it, so nothing is freed. Tiles
 * have 4 rows and 8 columns. */
#ifndef TFM_TESTS_HAND_PROGRAM_H
#define TFM_TESTS_HAND_PROGRAM_H

#include "tfm/abi/program.h"
#include "tfm/tfm.h"

enum { HAND_MOST = 128, HAND_TILE_ROWS = 4, HAND_WIDTH = 8 };

typedef struct HandProgram {
  tfm_program program;
  const char *symbols[8];
  tfm_term terms[HAND_MOST];
  tfm_polynomial polynomials[HAND_MOST];
  tfm_tensor_info inputs[8], outputs[8];
  tfm_check checks[8];
  tfm_condition conditions[16];
  tfm_message_part parts[16];
  tfm_id_limit id_limits[8];
  tfm_weight weights[8];
  tfm_buffer buffers[16];
  void *kernels[HAND_MOST];
  tfm_step steps[16];
  tfm_operand operands[HAND_MOST];
  tfm_row_step rows[16];
  tfm_gemm_step gemms[8];
  tfm_matmul_step matmuls[8];
  tfm_attention_step attentions[8];
  tfm_table_step tables[8];
  tfm_along_step alongs[8];
  tfm_ids_step ids[8];
  tfm_append_step appends[8];
  tfm_cache caches[8];
  uint32_t n_terms, n_rows, n_gemms, n_matmuls, n_attentions, n_tables, n_ids, n_conditions, n_parts;
} HandProgram;

void hand_open(HandProgram *hand, const char *name);
void hand_close(HandProgram *hand);

tfm_size hand_constant(HandProgram *hand, int64_t value);
tfm_size hand_symbol(HandProgram *hand, const char *name); /* declares it */
/* coefficient times the symbols with these numbers (n of them). */
tfm_size hand_product(HandProgram *hand, int64_t coefficient, int n, const uint8_t *symbols);
uint32_t hand_input(HandProgram *hand, const char *name, int dtype, const char *shape, int rank, const tfm_size *dims);
uint32_t hand_output(HandProgram *hand, const char *name, int dtype, const char *shape, int rank, const tfm_size *dims);
uint32_t hand_buffer(HandProgram *hand, int dtype, tfm_size elements, uint32_t first_step, uint32_t last_step);
uint32_t hand_kernel(HandProgram *hand, void (*function)(void));
tfm_operand hand_operand(int space, uint32_t index, int dtype, int rank, const tfm_size *strides);
/* Appends operands; returns the number of the first. */
uint32_t hand_operands(HandProgram *hand, int n, const tfm_operand *operands);
/* A step of this kind whose own struct is at `index`; returns its number. */
uint32_t hand_step(HandProgram *hand, int kind, uint32_t index, tfm_size work);

/* Tile kernels by rows, for a row stride of a and of b that the caller sets first (one program at a time). */
typedef void (*hand_tile)(const float *, const float *, float *, int64_t, int64_t, int64_t, int64_t, const float *,
                          int64_t);
enum { HAND_A_768, HAND_A_STRIP, HAND_A_STRIP_EXACT, HAND_A_H, HAND_PAGE_KEYS, HAND_PAGE_VALUES,
       HAND_PAGE_VALUES_EXACT, N_HAND_TILES };
extern const hand_tile hand_tiles[N_HAND_TILES][HAND_TILE_ROWS + 1];
void hand_use_tiles(HandProgram *hand, int which, uint32_t *tiles);

/* Strides that the tiles are made for. */
enum { HAND_A_STRIDE = 816, HAND_H = 12 };
/* For pages of caches: queries stand HAND_PAGE_QUERY apart, and b is a page of keys or a cache of values with
 * HAND_PAGE_COLUMNS columns. */
enum { HAND_PAGE_QUERY = 48, HAND_PAGE_COLUMNS = 16 };

void hand_pack(const float *source, int64_t k_stride, int64_t column_stride, int64_t k, int64_t columns, float *packed);
void hand_softmax(float *strip, int64_t rows, int64_t columns, float *maximum, float *sum, float *scale);
int32_t hand_finite(const float *x, int64_t row_stride, int64_t rows, int64_t columns);
/* An element of an operand of a row kernel. */
char *hand_at(const tfm_row_args *args, int operand, int64_t row, int64_t column);
float hand_float_at(const tfm_row_args *args, int operand, int64_t row, int64_t column);
/* result = operand 1 * operand 2. */
void hand_multiply(const tfm_row_args *args);

/* The same numbers in every run, between -1 and 1. */
void hand_fill(float *numbers, int64_t n, uint32_t seed);

#endif

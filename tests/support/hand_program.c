/* Programs made by hand, and kernels in plain C. In and out: see hand_program.h. Nothing is checked: a test that
 * overfills an array is wrong, and the sanitizers say so. */
#include "hand_program.h"

#include <math.h>
#include <string.h>

#include "tfm/abi/drivers.h"

/* Sizes 0 and 1 are the constants 0 and 1: steps use these numbers without making them. */
void hand_open(HandProgram *hand, const char *name) {
  memset(hand, 0, sizeof *hand);
  hand->program.version = TFM_PROGRAM_VERSION;
  hand->program.drivers = &tfm_all_drivers;
  hand->program.name = name;
  hand->program.isa = "C";
  hand_constant(hand, 0);
  hand_constant(hand, 1);
}

/* The program points into the HandProgram, which must not move from here on. */
void hand_close(HandProgram *hand) {
  tfm_program *program = &hand->program;
  program->symbols = hand->symbols;
  program->terms = hand->terms;
  program->polynomials = hand->polynomials;
  program->inputs = hand->inputs;
  program->outputs = hand->outputs;
  program->checks = hand->checks;
  program->conditions = hand->conditions;
  program->parts = hand->parts;
  program->id_limits = hand->id_limits;
  program->weights = hand->weights;
  program->buffers = hand->buffers;
  program->kernels = hand->kernels;
  program->steps = hand->steps;
  program->operands = hand->operands;
  program->rows = hand->rows;
  program->gemms = hand->gemms;
  program->matmuls = hand->matmuls;
  program->attentions = hand->attentions;
  program->tables = hand->tables;
  program->alongs = hand->alongs;
  program->ids = hand->ids;
  program->appends = hand->appends;
  program->caches = hand->caches;
}

// ---- parts ----

/* A polynomial of one term; callers that want more terms append them directly behind it. */
tfm_size hand_product(HandProgram *hand, int64_t coefficient, int n, const uint8_t *symbols) {
  tfm_term *term = &hand->terms[hand->n_terms];
  term->coefficient = coefficient;
  term->degree = (uint8_t)n;
  if (n) memcpy(term->symbols, symbols, (size_t)n);
  hand->polynomials[hand->program.n_polynomials] = (tfm_polynomial){hand->n_terms++, 1};
  return hand->program.n_polynomials++;
}

tfm_size hand_constant(HandProgram *hand, int64_t value) { return hand_product(hand, value, 0, NULL); }

tfm_size hand_symbol(HandProgram *hand, const char *name) {
  uint8_t number = (uint8_t)hand->program.n_symbols++;
  hand->symbols[number] = name;
  return hand_product(hand, 1, 1, &number);
}

/* An input or output; `shape` is its text for messages. */
static tfm_tensor_info tensor_info(const char *name, int dtype, const char *shape, int rank, const tfm_size *dims) {
  tfm_tensor_info info = {.name = name, .dtype = (uint8_t)dtype, .rank = (uint8_t)rank, .shape = shape};
  for (int i = 0; i < rank; i++) info.dims[i] = dims[i];
  return info;
}

uint32_t hand_input(HandProgram *hand, const char *name, int dtype, const char *shape, int rank, const tfm_size *dims) {
  hand->inputs[hand->program.n_inputs] = tensor_info(name, dtype, shape, rank, dims);
  return hand->program.n_inputs++;
}

uint32_t hand_output(HandProgram *hand, const char *name, int dtype, const char *shape, int rank,
                     const tfm_size *dims) {
  hand->outputs[hand->program.n_outputs] = tensor_info(name, dtype, shape, rank, dims);
  return hand->program.n_outputs++;
}

uint32_t hand_buffer(HandProgram *hand, int dtype, tfm_size elements, uint32_t first_step, uint32_t last_step) {
  hand->buffers[hand->program.n_buffers] =
      (tfm_buffer){.elements = elements, .dtype = (uint8_t)dtype, .first_step = first_step, .last_step = last_step};
  return hand->program.n_buffers++;
}

/* Programs store functions as object pointers; the union converts without a cast that ISO C forbids. */
uint32_t hand_kernel(HandProgram *hand, void (*function)(void)) {
  union {
    void (*function)(void);
    void *object;
  } kernel = {function};
  hand->kernels[hand->program.n_kernels] = kernel.object;
  return hand->program.n_kernels++;
}

/* An operand without offset; callers that need one set it. */
tfm_operand hand_operand(int space, uint32_t index, int dtype, int rank, const tfm_size *strides) {
  tfm_operand operand = {.space = (uint8_t)space, .dtype = (uint8_t)dtype, .index = index};
  for (int i = 0; i < rank; i++) operand.strides[i] = strides[i];
  return operand;
}

uint32_t hand_operands(HandProgram *hand, int n, const tfm_operand *operands) {
  uint32_t first = hand->program.n_operands;
  for (int i = 0; i < n; i++) hand->operands[hand->program.n_operands++] = operands[i];
  return first;
}

/* Appends a step; its own struct stands at `index` of the array of its kind. */
uint32_t hand_step(HandProgram *hand, int kind, uint32_t index, tfm_size work) {
  hand->steps[hand->program.n_steps] = (tfm_step){.kind = (uint8_t)kind, .index = index, .work = work, .name = "step"};
  return hand->program.n_steps++;
}

// ---- kernels ----

/* The loop that every tile kernel stands for: k ascending, one sum for each element. `exact` skips products with 0,
 * so that a value of infinity or NaN under a masked weight does no harm. c may have any alignment, since it may be
 * the caller's memory. */
static void tile(const float *a, int64_t a_stride, const float *b, int64_t b_stride, float *c, int64_t c_stride,
                 int64_t rows, int64_t k, int64_t accumulate, int64_t columns, int exact) {
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < columns; j++) {
      char *place = (char *)c + (i * c_stride + j) * (int64_t)sizeof(float);
      float sum = 0;
      if (accumulate) memcpy(&sum, place, sizeof sum);
      for (int64_t n = 0; n < k; n++) {
        float x = a[i * a_stride + n];
        if (!exact || x != 0) sum += x * b[n * b_stride + j];
      }
      memcpy(place, &sum, sizeof sum);
    }
  }
}

/* A tile kernel with the signature of generated ones; strides are compiled in, as they are there. */
#define TILE(name, rows, a_stride, b_stride, exact)                                                                \
  static void name##_##rows(const float *a, const float *b, float *c, int64_t c_stride, int64_t k,                 \
                            int64_t accumulate, int64_t columns, const float *next, int64_t next_lines) {          \
    (void)next, (void)next_lines;                                                                                  \
    tile(a, a_stride, b, b_stride, c, c_stride, rows, k, accumulate, columns, exact);                              \
  }
#define TILES(name, a_stride, b_stride, exact)                                          \
  TILE(name, 1, a_stride, b_stride, exact) TILE(name, 2, a_stride, b_stride, exact)     \
  TILE(name, 3, a_stride, b_stride, exact) TILE(name, 4, a_stride, b_stride, exact)
TILES(wide, HAND_A_STRIDE, HAND_WIDTH, 0)
TILES(strip, TFM_STRIP_STRIDE, HAND_WIDTH, 0)
TILES(strip_exact, TFM_STRIP_STRIDE, HAND_WIDTH, 1)
TILES(query, HAND_H, HAND_WIDTH, 0)
TILES(page_keys, HAND_PAGE_QUERY, TFM_CACHE_PAGE, 0)
TILES(page_values, TFM_STRIP_STRIDE, HAND_PAGE_COLUMNS, 0)
TILES(page_values_exact, TFM_STRIP_STRIDE, HAND_PAGE_COLUMNS, 1)
/* [kind][rows of the tile]; row 0 is unused. */
const hand_tile hand_tiles[N_HAND_TILES][HAND_TILE_ROWS + 1] = {
    [HAND_A_768] = {0, wide_1, wide_2, wide_3, wide_4},
    [HAND_A_STRIP] = {0, strip_1, strip_2, strip_3, strip_4},
    [HAND_A_STRIP_EXACT] = {0, strip_exact_1, strip_exact_2, strip_exact_3, strip_exact_4},
    [HAND_A_H] = {0, query_1, query_2, query_3, query_4},
    [HAND_PAGE_KEYS] = {0, page_keys_1, page_keys_2, page_keys_3, page_keys_4},
    [HAND_PAGE_VALUES] = {0, page_values_1, page_values_2, page_values_3, page_values_4},
    [HAND_PAGE_VALUES_EXACT] = {0, page_values_exact_1, page_values_exact_2, page_values_exact_3, page_values_exact_4}};

/* Kernels of one kind for 1 to HAND_TILE_ROWS rows, none of which takes a whole panel; other entries say that there is
 * none. */
void hand_use_tiles(HandProgram *hand, int which, uint32_t *tiles) {
  tiles[0] = 0;
  for (int i = 1; i <= TFM_MAX_TILE_ROWS; i++) tiles[i] = TFM_NONE;
  for (int i = 1; i <= HAND_TILE_ROWS; i++) tiles[i] = hand_kernel(hand, (void (*)(void))hand_tiles[which][i]);
}

/* One panel, [k][HAND_WIDTH], zeros beyond `columns`. */
void hand_pack(const float *source, int64_t k_stride, int64_t column_stride, int64_t k, int64_t columns,
               float *packed) {
  for (int64_t i = 0; i < k; i++)
    for (int64_t j = 0; j < HAND_WIDTH; j++)
      packed[i * HAND_WIDTH + j] = j < columns ? source[i * k_stride + j * column_stride] : 0;
}

/* One block of an online softmax: `maximum` and `sum` carry over from block to block, and `scale` is what earlier
 * results must be multiplied with. A row that is all -inf keeps the sum 0. The strip is padded with zeros to a
 * multiple of 16. */
void hand_softmax(float *strip, int64_t rows, int64_t columns, float *maximum, float *sum, float *scale) {
  for (int64_t i = 0; i < rows; i++) {
    float *row = strip + i * TFM_STRIP_STRIDE, most = maximum[i];
    for (int64_t j = 0; j < columns; j++) most = row[j] > most ? row[j] : most;
    scale[i] = most == maximum[i] ? 1 : expf(maximum[i] - most);
    maximum[i] = most;
    sum[i] *= scale[i];
    for (int64_t j = 0; j < columns; j++) {
      row[j] = row[j] == -INFINITY ? 0 : expf(row[j] - most);
      sum[i] += row[j];
    }
    for (int64_t j = columns; j % 16; j++) row[j] = 0;
  }
}

/* Whether a block has neither infinity nor NaN: then the inexact tiles may be used. */
int32_t hand_finite(const float *x, int64_t row_stride, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++)
      if (!isfinite(x[i * row_stride + j])) return 0;
  return 1;
}

char *hand_at(const tfm_row_args *args, int operand, int64_t row, int64_t column) {
  const tfm_row_operand *o = &args->operands[operand];
  return o->base + row * o->row_stride + column * o->column_stride;
}

float hand_float_at(const tfm_row_args *args, int operand, int64_t row, int64_t column) {
  float x;
  memcpy(&x, hand_at(args, operand, row, column), sizeof x);
  return x;
}

void hand_multiply(const tfm_row_args *args) {
  for (int64_t i = 0; i < args->rows; i++)
    for (int64_t j = 0; j < args->columns; j++) {
      float product = hand_float_at(args, 1, i, j) * hand_float_at(args, 2, i, j);
      memcpy(hand_at(args, 0, i, j), &product, sizeof product);
    }
}

/* A linear congruential generator (the constants of Numerical Recipes); its low 8 bits are poor and dropped. */
void hand_fill(float *numbers, int64_t n, uint32_t seed) {
  for (int64_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    numbers[i] = (float)((int32_t)(seed >> 8) - (1 << 23)) / (float)(1 << 23);
  }
}

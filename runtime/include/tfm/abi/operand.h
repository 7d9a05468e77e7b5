/* tfm/abi/operand.h: sizes, and what a step reads and writes. C99. A part of abi/program.h, which includes it.
 *
 * Sizes. Every number that may depend on run-time sizes is a `tfm_size`: an index into `polynomials`, of which number 0
 * is the constant 0, 1 the constant 1. When a context is bound to sizes, they are evaluated once into int64_t. */
#ifndef TFM_OPERAND_H
#define TFM_OPERAND_H

#include <stdint.h>

#include "tfm/abi/kernels.h"

#define TFM_NONE UINT32_MAX

typedef enum tfm_dtype { TFM_F32, TFM_I32, TFM_BOOL } tfm_dtype; /* bool: one byte, 0 or 1 */
typedef uint32_t tfm_size;                                       /* index of a polynomial */
enum { TFM_FIRST_FLOOR = 64 };

typedef struct tfm_term { /* coefficient * product of symbols[0..degree) */
  int64_t coefficient;
  uint8_t degree, symbols[7]; /* indexes of run-time sizes, repeated for powers; TFM_FIRST_FLOOR + i: floor i */
} tfm_term;

typedef struct tfm_polynomial {
  uint32_t first_term, n_terms; /* in tfm_program.terms; no term: 0 */
} tfm_polynomial;

typedef struct tfm_floor { /* numerator / divisor, rounded down */
  tfm_size numerator;      /* never negative; it stands before all polynomials that this floor is in */
  int64_t divisor;
} tfm_floor;

// ---- memory ----

typedef enum tfm_space {
  TFM_SPACE_INPUT,  /* memory of the caller, row-major, any alignment */
  TFM_SPACE_OUTPUT, /* memory of the caller; NULL: the output is not wanted and the step is skipped */
  TFM_SPACE_WEIGHT, /* packed weights */
  TFM_SPACE_BUFFER, /* workspace, 64-byte aligned */
  TFM_SPACE_SIZE    /* the value of a tfm_size as a scalar of the operand's dtype */
} tfm_space;

typedef struct tfm_operand {
  uint8_t space, dtype;
  uint8_t gathered; /* row kernels: the operand with this number holds the row numbers (i32) of this one, a table:
                       its stride along the row axis is the distance of table rows and is not walked; 0: no table */
  uint8_t form;     /* tfm_form of the elements in memory: F32 (as dtype says); of tables and factors BF16 or F16 */
  uint32_t index;   /* of the input, output, weight, buffer; or the tfm_size */
  tfm_size offset;  /* elements from its beginning */
  tfm_size strides[TFM_MAX_RANK]; /* elements, one per axis of the step that uses it; 0 where it is broadcast */
} tfm_operand;

typedef struct tfm_buffer { /* workspace.c places them; those that are never live at the same time may share memory */
  tfm_size elements;
  uint8_t dtype;
  uint8_t persistent; /* written by a prepare step: its memory is its own, also between runs */
  uint32_t first_step, last_step; /* steps from the first write to the last use */
} tfm_buffer;

typedef struct tfm_weight {
  uint64_t offset, bytes; /* in the packed weights; offsets are multiples of 64 */
} tfm_weight;

#endif

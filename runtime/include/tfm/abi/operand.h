/* tfm/abi/operand.h: what steps of a program read and write. C99. A part of tfm/abi/program.h, which says what a size
 * is. */
#ifndef TFM_OPERAND_H
#define TFM_OPERAND_H

#include <stdint.h>

#include "tfm/abi/kernels.h"

#define TFM_NONE UINT32_MAX

typedef enum tfm_dtype { TFM_F32, TFM_I32, TFM_BOOL } tfm_dtype; /* bool: one byte, 0 or 1 */
typedef uint32_t tfm_size;                                       /* index of a polynomial */

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
  uint8_t form;     /* tfm_form of a table's elements in memory: F32 (as dtype says), BF16 or F16 in order */
  uint32_t index;   /* of the input, output, weight, buffer; or the tfm_size */
  tfm_size offset;  /* elements from its beginning */
  tfm_size strides[TFM_MAX_RANK]; /* elements, one per axis of the step that uses it; 0 where it is broadcast */
} tfm_operand;

#endif

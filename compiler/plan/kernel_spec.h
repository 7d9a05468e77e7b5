/* KernelSpec: what a kernel has to be, without LLVM. Equal specs are one kernel, whichever layers ask for it.
 *
 * In: what plan knows statically. Out: a canonical text, and what kernels/ turns into a function whose type is in
 * abi/kernels.h. A spec holds nothing that depends on the batch, the length or the depth of a model, so no change of a
 * size recompiles anything; only whether a sum is known to be short or long is in it. Refuses
 * nothing. A spec is a plain value; its expression belongs to the plan's arena. */
#ifndef TFM_PLAN_KERNEL_SPEC_H
#define TFM_PLAN_KERNEL_SPEC_H

#include "graph/expr.h"
#include "tfm/abi/program.h"

typedef enum KernelFamily {
#define KERNEL(Enum, text, Type, letters, line) KERNEL_##Enum,
#include "plan/kernels.def"
  N_KERNEL_FAMILIES
} KernelFamily;

typedef enum ColumnAccess {
  COLUMN_CONTIGUOUS, /* column stride = size of an element */
  COLUMN_BROADCAST,  /* column stride 0: one value per row */
  COLUMN_STRIDED,    /* any column stride, read from the arguments */
  COLUMN_TRANSPOSED, /* the same, with neighbouring rows side by side: row stride = size of an element, 4 bytes */
  COLUMN_LOOKED_UP   /* a table of one column: `gathered` has an id for each column, the row stride is that of an id */
} ColumnAccess;

/* The lengths of lines that are summed: whether they are one chain of TFM_ROW_CHAIN elements. */
typedef enum LineLength { LINES_SHORT, LINES_LONG, LINES_OF_ANY_LENGTH } LineLength;

typedef struct RowOperandSpec {
  DType dtype;
  ColumnAccess access;
  uint8_t form;     /* as in tfm_operand */
  uint8_t gathered; /* number of the operand that holds its row numbers; 0: none */
} RowOperandSpec;

/* What a walk over the steps of a state leaves: what each step gives and the state behind the last one; the same of one
 * step; states behind some steps, and what keys read. */
typedef enum StatePart { STATE_GIVES, STATE_GIVES_ONE, STATE_PASSES, N_STATE_PARTS } StatePart;

typedef struct KernelSpec {
  KernelFamily family;
  /* TILE */
  uint8_t rows, width;
  int64_t a_stride, b_stride; /* elements between rows of a, and of b (= width for packed b) */
  int64_t a_step;             /* elements between steps of k in a; 0: 1 */
  uint16_t chain;             /* TILE and DIRECT: steps of k in a chain of sums; 0: all are one, however many */
  bool goes_on;               /* TILE: the first chain may begin with c, and be added to it, as `accumulate` says */
  uint8_t b_form;             /* tfm_form; PACK: of the source */
  bool b_is_page;             /* of values, in caches: it ends after a few steps of k, so the caller prefetches it */
  bool has_all_columns;       /* every call is for all columns */
  bool exact_zero;            /* an element of a that is 0 contributes 0 whatever b holds */
  bool b_is_signed;           /* form INT8: b is values of attention */
  bool has_whole_panel;       /* of few rows: all columns of a panel, whose lines are read one after the other; twice
                                 as many: of two, the second of which is at `next` */
  float factor;               /* form INT8: what results are multiplied by at last; 0: nothing */
  bool is_matrix;             /* form INT8: by what the target has for matrices (MatrixInfo) */
  const char *of_one_row;     /* the kernel that this one calls for each row; NULL: all rows are computed at once */
  int64_t k;                  /* QUANTIZE, and TILE of form INT8 in pairs: numbers of a row */
  bool is_rotated, as_bytes;  /* QUANTIZE: before it is rounded; numbers are bytes whatever tiles take */
  bool is_grouped, is_mixed;  /* QUANTIZE: for b of form INT4, of a mixed one */
  bool in_pairs;              /* TILE and QUANTIZE: rows that dot_pairs of the target takes */
  bool is_weighed;            /* SOFTMAX and WEIGH: the softmax multiplies by the scales */
  bool drops_small;           /* SOFTMAX, and ROW of a softmax: powers below 2^-100 are 0, in steps of training */
  /* PACK: width too; which stride of the source is 1 */
  bool pack_transposes;       /* k_stride is 1 (keys); else column_stride is 1, or general */
  /* DIRECT: width 0: columns side by side, `rows` rows (0: any number); else rows side by side, `width` columns */
  bool y_is_line;   /* the numbers of a column of y are neighbours */
  bool all_columns; /* x is one row, whose columns side by side are however many, and neighbours */
  /* STATE, STATE_KEPT, STATE_GRAD: width too, the columns of a block */
  StatePart part;             /* STATE */
  bool passes_caches;         /* STATE of one step: the state behind it is not written into caches */
  bool fades;                 /* each step multiplies the rows of the state first */
  bool fades_by_rows;         /* by a factor for each */
  uint8_t beta;               /* tfm_beta */
  /* ROW */
  OpKind reduction;           /* OP_POINTWISE, or SUM MEAN MAX MIN ARGMAX SOFTMAX LOG_SOFTMAX LAYER_NORM RMS_NORM */
  uint8_t reduce;             /* as in tfm_row_step */
  LineLength lines;           /* LINES_SHORT where nothing is summed */
  uint8_t n_operands;         /* [0] the result */
  RowOperandSpec operands[TFM_MAX_OPERANDS];
  /* EXPR_INPUT i is operand i; EXPR_ACC is operand 0 before it is overwritten; the axis of EXPR_INDEX is that of
   * tfm_row_args.coordinates; the input of EXPR_GATHER is the operand of the table. */
  Expr *expr;
  uint8_t weight, bias;       /* norms: numbers of the operands w, b; 0: none */
  uint8_t grad_of;            /* of the operand x, if the kernel gives what x gets; 0: it does not */
  uint8_t second;             /* of the operand that gets the second result: what each row gives w; 0: none */
  double eps;
} KernelSpec;

/* The name and the document line of every family. */
typedef struct KernelFamilyInfo {
  const char *name, *function, *letters, *line;
} KernelFamilyInfo;

extern const KernelFamilyInfo kernel_families[N_KERNEL_FAMILIES];

/* Appends a canonical text, equal exactly for equal specs. It is hashed into the function's name and into the keys of
 * the code cache, so a member that generated code reads must be printed: if it were left out, two different kernels
 * would share one function. */
void kernel_spec_print(StrBuf *out, const KernelSpec *spec);
/* The symbol of the function, by that text alone: the same in every plan and on every machine. */
const char *kernel_name(Arena *arena, const KernelSpec *spec);

#endif

/* Ops: the operations of a graph, their types and attributes: ops.def, dtype.def and attributes.def as tables.
 *
 * In: an operation. Out: its row. Shape rules, the interpreter and the emitters take their columns where they stand
 * (infer.c, eval_run.c, kernels/emit_expr.c, plan/plan.c), each with a macro of its own over ops.def. */
#ifndef TFM_GRAPH_OPS_H
#define TFM_GRAPH_OPS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum OpKind {
#define OP(Enum, ...) OP_##Enum,
#include "graph/ops.def"
  N_OPS
} OpKind;

typedef enum DType {
#define DTYPE(Enum, name, bytes) DTYPE_##Enum,
#include "graph/dtype.def"
  N_DTYPES
} DType;

typedef enum Attribute {
#define ATTRIBUTE(Enum, text, form, type, member) ATTRIBUTE_##Enum,
#include "graph/attributes.def"
  N_ATTRIBUTES
} Attribute;

typedef enum OpCategory {
  CATEGORY_SOURCE, CATEGORY_UNARY, CATEGORY_BINARY, CATEGORY_TERNARY, CATEGORY_VIEW, CATEGORY_REDUCE, CATEGORY_CONTRACT,
  CATEGORY_OTHER
} OpCategory;

typedef enum OpTypes { TYPES_F32, TYPES_I32, TYPES_BOOL, TYPES_NUMBER, TYPES_ANY, TYPES_SAME, TYPES_OWN } OpTypes;

typedef enum OpCost { COST_CHEAP, COST_DIVIDER, COST_POLYNOMIAL, COST_BY_SHAPE } OpCost;

typedef struct OpInfo { /* a row of ops.def */
  const char *name;
  OpCategory category;
  int least, most; /* inputs; -1: any number */
  OpTypes takes, gives;
  OpCost cost;
  uint32_t attributes; /* bits 1 << ATTRIBUTE_... */
  const char *line;
} OpInfo;

typedef struct AttributeInfo {
  const char *name;
  bool is_bare; /* written without its name */
} AttributeInfo;

extern const OpInfo op_table[N_OPS];
extern const AttributeInfo attribute_table[N_ATTRIBUTES];
extern const char *const dtype_names[N_DTYPES];
extern const uint8_t dtype_bytes[N_DTYPES];

static inline bool op_has_attribute(OpKind op, Attribute attribute) {
  return op_table[op].attributes >> attribute & 1;
}

static inline bool op_is_pointwise(OpKind op) {
  OpCategory category = op_table[op].category;
  return category == CATEGORY_UNARY || category == CATEGORY_BINARY || category == CATEGORY_TERNARY;
}

/* A second result of the operation that is its input. */
static inline bool op_is_part(OpKind op) {
  return op == OP_ATTENTION_WEIGHTS || op == OP_ATTENTION_GRAD_K || op == OP_ATTENTION_GRAD_V ||
         op == OP_ROW_GRAD_W || op == OP_LINEAR_ATTENTION_STATE || op == OP_LINEAR_ATTENTION_GRAD_K ||
         op == OP_LINEAR_ATTENTION_GRAD_V || op == OP_LINEAR_ATTENTION_GRAD_DECAY ||
         op == OP_LINEAR_ATTENTION_GRAD_BETA;
}

/* Whether computing an element again costs no more than storing and reading it. */
static inline bool op_is_cheap(OpKind op) { return op_table[op].cost == COST_CHEAP; }

/* Whether the operation takes an operand of this type (its first, if it is not pointwise). */
bool op_takes(OpKind op, DType dtype);
/* What is wrong if it does not: "the operands must be f32". */
const char *op_takes_fault(OpKind op);
/* The type of the result for operands of a type; `own` if the table leaves it to the node. */
DType op_gives(OpKind op, DType operands, DType own);
/* The type of a pointwise operation on operands of these types; NULL or the fault. */
const char *op_pointwise_type(OpKind op, const DType *args, DType *result);
/* The comparison that holds exactly where this one does not, NaN aside: EQ and NE, LT and GE, GT and LE. N_OPS if the
 * operation is no comparison. */
OpKind op_opposite(OpKind comparison);

#endif

/* In: ops.def, dtype.def, attributes.def. Out: their tables, and the type rules that the columns `takes` and `gives`
 * stand for. See ops.h. */
#include "graph/ops.h"

#include <stddef.h>

// ---- tables ----

/* The names that the column `attributes` is written with. */
enum {
#define ATTRIBUTE(Enum, text, form, type, member) Enum = 1 << ATTRIBUTE_##Enum,
#include "graph/attributes.def"
};

const OpInfo op_table[N_OPS] = {
#define OP(Enum, text, category, least, most, takes, gives, shape, eval, code, cost, attributes, line) \
  [OP_##Enum] = {text, CATEGORY_##category, least, most, TYPES_##takes, TYPES_##gives, COST_##cost, attributes, line},
#include "graph/ops.def"
};

/* How the columns of a row hang together. */
#define IS(category, Wanted) (CATEGORY_##category == CATEGORY_##Wanted)
#define IS_POINTWISE(category) (IS(category, UNARY) || IS(category, BINARY) || IS(category, TERNARY))
#define OP(Enum, text, category, least, most, takes, gives, shape, eval, code, cost, attributes, line)         \
  _Static_assert(sizeof text > 1 && sizeof line > 1, #Enum " has no name or no description");                  \
  _Static_assert(!IS(category, UNARY) || (least == 1 && most == 1), #Enum " must take one operand");           \
  _Static_assert(!IS(category, BINARY) || (least == 2 && most == 2), #Enum " must take two operands");         \
  _Static_assert(!IS(category, TERNARY) || (least == 3 && most == 3), #Enum " must take three operands");      \
  _Static_assert(IS_POINTWISE(category) != (COST_##cost == COST_BY_SHAPE), #Enum " must have the cost of its category");
#include "graph/ops.def"

enum { BARE = true, LABELLED = false };

const AttributeInfo attribute_table[N_ATTRIBUTES] = {
#define ATTRIBUTE(Enum, text, form, type, member) [ATTRIBUTE_##Enum] = {text, form},
#include "graph/attributes.def"
};

const char *const dtype_names[N_DTYPES] = {
#define DTYPE(Enum, name, bytes) [DTYPE_##Enum] = name,
#include "graph/dtype.def"
};

const uint8_t dtype_bytes[N_DTYPES] = {
#define DTYPE(Enum, name, bytes) [DTYPE_##Enum] = bytes,
#include "graph/dtype.def"
};

// ---- types ----

/* ANY takes everything; SAME and OWN are no types of operands. */
bool op_takes(OpKind op, DType dtype) {
  switch (op_table[op].takes) {
    case TYPES_F32: return dtype == DTYPE_F32;
    case TYPES_I32: return dtype == DTYPE_I32;
    case TYPES_BOOL: return dtype == DTYPE_BOOL;
    case TYPES_NUMBER: return dtype != DTYPE_BOOL;
    default: return true;
  }
}

const char *op_takes_fault(OpKind op) {
  static const char *const faults[] = {[TYPES_F32] = "the operands must be f32",
                                       [TYPES_I32] = "the operands must be i32",
                                       [TYPES_BOOL] = "the operands must be bool",
                                       [TYPES_NUMBER] = "the operands must be f32 or i32"};
  return faults[op_table[op].takes];
}

DType op_gives(OpKind op, DType operands, DType own) {
  switch (op_table[op].gives) {
    case TYPES_F32: return DTYPE_F32;
    case TYPES_I32: return DTYPE_I32;
    case TYPES_BOOL: return DTYPE_BOOL;
    case TYPES_SAME: return operands;
    default: return own;
  }
}

/* All operands have one type, but for the condition of where. */
const char *op_pointwise_type(OpKind op, const DType *args, DType *result) {
  OpCategory category = op_table[op].category;
  if (category == CATEGORY_TERNARY) {
    if (args[0] != DTYPE_BOOL) return "the condition of where must be bool";
    args++;
  }
  if (!op_takes(op, args[0])) return op_takes_fault(op);
  if (category != CATEGORY_UNARY && args[0] != args[1]) return "the operands have different types";
  *result = op_gives(op, args[0], args[0]);
  return NULL;
}

OpKind op_opposite(OpKind comparison) {
  switch (comparison) {
    case OP_EQ: return OP_NE;
    case OP_NE: return OP_EQ;
    case OP_LT: return OP_GE;
    case OP_GE: return OP_LT;
    case OP_GT: return OP_LE;
    case OP_LE: return OP_GT;
    default: return N_OPS;
  }
}

/* Pointwise operations by their definitions, and expressions made of them.
 *
 * In: operands that broadcast; the expression of a fused node. Out: the result, element by element: f32 in double,
 * rounded once; i32 in int64_t, wrapped. In an expression every operation is rounded as if it were a node of its own,
 * so a fused graph gives the bits of the graph it was made from. Refused: integer division by zero. */
#include <math.h>
#include <string.h>

#include "graph/eval/eval_run.h"
#include "tfm/abi/double_functions.h"

static double f32_at(RowOperand x, int64_t i) { return (double)((const float *)x.data)[i * x.stride]; }
static int64_t i32_at(RowOperand x, int64_t i) { return ((const int32_t *)x.data)[i * x.stride]; }
static bool bool_at(RowOperand x, int64_t i) { return ((const uint8_t *)x.data)[i * x.stride] != 0; }

/* A double holds f32, i32 and bool exactly. */
static double number_at(DType dtype, RowOperand x, int64_t i) {
  return dtype == DTYPE_F32 ? f32_at(x, i) : dtype == DTYPE_I32 ? (double)i32_at(x, i) : (double)bool_at(x, i);
}

/* The low 32 bits as two's complement. */
static int32_t wrapped(int64_t x) {
  uint32_t low = (uint32_t)x;
  int32_t result;
  memcpy(&result, &low, sizeof result);
  return result;
}

// ---- one operand ----

#define F32_UNARY(name, value)                                                                   \
  static bool row_##name(DType dtype, const RowOperand *args, int64_t n, void *out) {            \
    (void)dtype;                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                            \
      double x = f32_at(args[0], i);                                                             \
      ((float *)out)[i] = (float)(value);                                                        \
    }                                                                                            \
    return true;                                                                                 \
  }

static const double PI = 3.14159265358979323846;

static double sigmoid(double x) { return 1 / (1 + double_exp(-x)); }

F32_UNARY(exp, double_exp(x))
F32_UNARY(log, double_log(x))
F32_UNARY(sqrt, sqrt(x))
F32_UNARY(rsqrt, 1 / sqrt(x))
F32_UNARY(abs, fabs(x))
F32_UNARY(floor, floor(x))
F32_UNARY(ceil, ceil(x))
F32_UNARY(round, nearbyint(x)) /* of the two nearest ones the even one, in the mode that programs begin in */
F32_UNARY(sin, double_sin(x))
F32_UNARY(cos, double_cos(x))
F32_UNARY(tanh, double_tanh(x))
F32_UNARY(sigmoid, sigmoid(x))
F32_UNARY(erf, erf(x))
F32_UNARY(relu, x < 0 ? 0 : x)
F32_UNARY(silu, x * sigmoid(x))
/* Hendrycks, Gimpel 2016: gelu and its two approximations, with the constants of that paper. */
F32_UNARY(gelu, x / 2 * (1 + erf(x / sqrt(2)))) /* of -inf NaN, as in PyTorch */
F32_UNARY(gelu_tanh, x / 2 * (1 + double_tanh(sqrt(2 / PI) * (x + 0.044715 * x * x * x))))
F32_UNARY(quick_gelu, x * sigmoid(1.702 * x))

static bool row_neg(DType dtype, const RowOperand *args, int64_t n, void *out) {
  for (int64_t i = 0; i < n; i++) {
    if (dtype == DTYPE_I32) ((int32_t *)out)[i] = wrapped(-i32_at(args[0], i));
    else ((float *)out)[i] = (float)-f32_at(args[0], i);
  }
  return true;
}

static bool row_not(DType dtype, const RowOperand *args, int64_t n, void *out) {
  (void)dtype;
  for (int64_t i = 0; i < n; i++) ((uint8_t *)out)[i] = !bool_at(args[0], i);
  return true;
}

static bool row_to_f32(DType dtype, const RowOperand *args, int64_t n, void *out) {
  for (int64_t i = 0; i < n; i++) ((float *)out)[i] = (float)number_at(dtype, args[0], i);
  return true;
}

/* Towards zero; NaN and what does not fit give the smallest i32, as ops.def says and as x86 does. */
static int32_t truncated(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN; }

static bool row_to_i32(DType dtype, const RowOperand *args, int64_t n, void *out) {
  for (int64_t i = 0; i < n; i++) ((int32_t *)out)[i] = truncated(number_at(dtype, args[0], i));
  return true;
}

// ---- two operands ----

#define BINARY(name, f32_value, i32_value)                                                       \
  static bool row_##name(DType dtype, const RowOperand *args, int64_t n, void *out) {            \
    for (int64_t i = 0; i < n && dtype == DTYPE_F32; i++) {                                      \
      double x = f32_at(args[0], i), y = f32_at(args[1], i);                                     \
      ((float *)out)[i] = (float)(f32_value);                                                    \
    }                                                                                            \
    for (int64_t i = 0; i < n && dtype == DTYPE_I32; i++) {                                      \
      int64_t x = i32_at(args[0], i), y = i32_at(args[1], i);                                    \
      ((int32_t *)out)[i] = wrapped(i32_value);                                                  \
    }                                                                                            \
    return true;                                                                                 \
  }

BINARY(add, x + y, x + y)
BINARY(sub, x - y, x - y)
BINARY(mul, x * y, x * y)
BINARY(maximum, isnan(x) || x > y ? x : y, x > y ? x : y)
BINARY(minimum, isnan(x) || x < y ? x : y, x < y ? x : y)

static bool row_div(DType dtype, const RowOperand *args, int64_t n, void *out) {
  (void)dtype;
  for (int64_t i = 0; i < n; i++) ((float *)out)[i] = (float)(f32_at(args[0], i) / f32_at(args[1], i));
  return true;
}

/* C truncates; the quotient is one less where signs differ and something is left. */
static int64_t floor_divide(int64_t x, int64_t y) { return x / y - (x % y != 0 && (x < 0) != (y < 0)); }

static bool row_floordiv(DType dtype, const RowOperand *args, int64_t n, void *out) {
  (void)dtype;
  for (int64_t i = 0; i < n; i++) {
    int64_t x = i32_at(args[0], i), y = i32_at(args[1], i);
    if (y == 0) return false;
    ((int32_t *)out)[i] = wrapped(floor_divide(x, y));
  }
  return true;
}

static bool row_floormod(DType dtype, const RowOperand *args, int64_t n, void *out) {
  (void)dtype;
  for (int64_t i = 0; i < n; i++) {
    int64_t x = i32_at(args[0], i), y = i32_at(args[1], i);
    if (y == 0) return false;
    ((int32_t *)out)[i] = wrapped(x - floor_divide(x, y) * y);
  }
  return true;
}

/* In double, which holds both types exactly. */
#define COMPARISON(name, operator)                                                               \
  static bool row_##name(DType dtype, const RowOperand *args, int64_t n, void *out) {            \
    for (int64_t i = 0; i < n; i++)                                                              \
      ((uint8_t *)out)[i] = number_at(dtype, args[0], i) operator number_at(dtype, args[1], i);  \
    return true;                                                                                 \
  }

COMPARISON(eq, ==)
COMPARISON(ne, !=)
COMPARISON(lt, <)
COMPARISON(gt, >)
COMPARISON(le, <=)
COMPARISON(ge, >=)

static bool row_and(DType dtype, const RowOperand *args, int64_t n, void *out) {
  (void)dtype;
  for (int64_t i = 0; i < n; i++) ((uint8_t *)out)[i] = bool_at(args[0], i) && bool_at(args[1], i);
  return true;
}

static bool row_or(DType dtype, const RowOperand *args, int64_t n, void *out) {
  (void)dtype;
  for (int64_t i = 0; i < n; i++) ((uint8_t *)out)[i] = bool_at(args[0], i) || bool_at(args[1], i);
  return true;
}

/* Copies bytes, so a NaN keeps its payload and i32 and bool need no case of their own. */
static bool row_where(DType dtype, const RowOperand *args, int64_t n, void *out) {
  size_t bytes = dtype_bytes[dtype];
  for (int64_t i = 0; i < n; i++) {
    RowOperand chosen = bool_at(args[0], i) ? args[1] : args[2];
    memcpy((char *)out + (size_t)i * bytes, (const char *)chosen.data + (size_t)(i * chosen.stride) * bytes, bytes);
  }
  return true;
}

// ---- all of them ----

/* The column `eval` of the pointwise operations. */
#define ROW_SOURCE(eval) NULL
#define ROW_UNARY(eval) row_##eval
#define ROW_BINARY(eval) row_##eval
#define ROW_TERNARY(eval) row_##eval
#define ROW_VIEW(eval) NULL
#define ROW_REDUCE(eval) NULL
#define ROW_CONTRACT(eval) NULL
#define ROW_OTHER(eval) NULL
typedef bool (*RowFunction)(DType dtype, const RowOperand *args, int64_t n, void *out);

static const RowFunction row_functions[N_OPS] = {
#define OP(Enum, text, category, least, most, takes, gives, shape, eval, ...) [OP_##Enum] = ROW_##category(eval),
#include "graph/ops.def"
};

bool eval_row(OpKind op, DType dtype, const RowOperand *args, int64_t n, void *out) {
  return row_functions[op](dtype, args, n, out);
}

// ---- nodes ----

/* `refusal`: what the model says of it, or NULL. */
static bool refuse_division(const EvalNode *in, const char *refusal) {
  return refusal ? eval_fault(in, DIAG_RUN_CHECK, "%s", refusal)
                 : eval_fault(in, DIAG_RUN_ARITHMETIC, "integer division by zero");
}

/* Row by row too; operands that broadcast along the last axis have a stride of 0. */
bool eval_elementwise(const EvalNode *in, Tensor *out) {
  uint32_t outer = out->rank ? out->rank - 1 : 0;
  int64_t length = out->rank ? out->dims[outer] : 1, strides[3][MAX_RANK];
  size_t n = in->node->inputs.n;
  for (size_t i = 0; i < n; i++) {
    broadcast_strides(in->inputs[i]->rank, in->inputs[i]->dims, 1, out->rank, strides[i]);
  }
  DType dtype = in->inputs[n - 1]->dtype;
  Grid rows = grid_of(outer, out->dims);
  char *to = out->data;
  for (int64_t row = 0; row < rows.points; row++, grid_next(&rows)) {
    RowOperand args[3];
    for (size_t i = 0; i < n; i++) {
      size_t offset = (size_t)grid_offset(&rows, strides[i]) * dtype_bytes[in->inputs[i]->dtype];
      args[i] = (RowOperand){(const char *)in->inputs[i]->data + offset, out->rank ? strides[i][outer] : 0};
    }
    if (!eval_row(in->node->op, dtype, args, length, to)) {
      return refuse_division(in, in->node->origin.refusal);
    }
    to += (size_t)length * dtype_bytes[out->dtype];
  }
  return true;
}

// ---- expressions ----

/* One distinct subexpression; shared ones are computed once a row. */
typedef struct Slot {
  const Expr *expr;
  RowOperand row;             /* its values along the row that is computed */
  void *buffer;               /* of its own, if it has to be computed */
  int64_t strides[MAX_RANK];  /* INPUT: in the domain; GATHER: of the ids, in the domain without its last axis */
} Slot;

typedef struct Body {
  const EvalNode *in;
  ExprList list;
  Slot *slots;
  Grid rows; /* the domain without its last axis */
  int64_t length;
} Body;

static const Tensor *input_of(const Body *body, uint32_t i) { return body->in->inputs[i]; }

static void fill_constant(const Body *body, Slot *slot) {
  const Expr *expr = slot->expr;
  int64_t integer = expr->kind == EXPR_SIZE ? eval_size(body->in->run, expr->size) : expr->integer;
  double number = expr->kind == EXPR_SIZE ? (double)integer : expr->number;
  if (expr->dtype == DTYPE_F32) *(float *)slot->buffer = (float)number;
  else if (expr->dtype == DTYPE_I32) *(int32_t *)slot->buffer = (int32_t)(uint32_t)integer;
  else *(uint8_t *)slot->buffer = integer != 0;
  slot->row = (RowOperand){slot->buffer, 0};
}

/* Allocates and fills what does not change from row to row: constants, sizes, the index of the last axis, and
 * strides. */
static void prepare(Body *body, Slot *slot, Arena *scratch) {
  const Expr *expr = slot->expr;
  uint32_t rank = body->rows.rank + 1;
  slot->buffer = arena_array(scratch, (size_t)body->length + 1, dtype_bytes[expr->dtype]);
  slot->row = (RowOperand){slot->buffer, 1};
  if (expr->kind == EXPR_INPUT) {
    const Tensor *x = input_of(body, expr->input);
    broadcast_strides(x->rank, x->dims, 1, rank, slot->strides);
    slot->row.stride = slot->strides[rank - 1];
  } else if (expr->kind == EXPR_GATHER) {
    const Tensor *ids = input_of(body, expr->ids);
    broadcast_strides(ids->rank, ids->dims, 1, rank - 1, slot->strides);
  } else if (expr->kind == EXPR_CONST || expr->kind == EXPR_SIZE) {
    fill_constant(body, slot);
  } else if (expr->kind == EXPR_INDEX && expr->axis == 0) {
    for (int64_t i = 0; i < body->length; i++) ((int32_t *)slot->buffer)[i] = (int32_t)i;
  } else if (expr->kind == EXPR_INDEX) {
    slot->row.stride = 0;
  }
}

static bool gather_row(const Body *body, Slot *slot) {
  const Tensor *table = input_of(body, slot->expr->input), *ids = input_of(body, slot->expr->ids);
  int32_t id = ((const int32_t *)ids->data)[grid_offset(&body->rows, slot->strides)];
  if (id < 0 || id >= table->dims[0]) {
    return eval_fault(body->in, DIAG_INPUT_VALUE, "id %d is not in [0, %lld)", id, (long long)table->dims[0]);
  }
  slot->row = (RowOperand){(const char *)table->data + (size_t)(id * table->dims[1]) * dtype_bytes[table->dtype], 1};
  return true;
}

/* The type of an operation is that of its last argument: the first of where is the condition. */
static bool op_row(const Body *body, uint32_t i) {
  RowOperand args[3];
  const Expr *expr = body->slots[i].expr;
  for (uint32_t j = 0; j < expr->n_args; j++) args[j] = body->slots[body->list.args[j][i]].row;
  DType dtype = expr->args[expr->n_args - 1]->dtype;
  if (eval_row(expr->op, dtype, args, body->length, body->slots[i].buffer)) return true;
  return refuse_division(body->in, expr->refusal);
}

/* Computes the slots in the order of the list, so that arguments come before their users. */
static bool compute_row(const Body *body, const float *acc) {
  for (uint32_t i = 0; i < body->list.n; i++) {
    Slot *slot = &body->slots[i];
    if (slot->expr->kind == EXPR_OP && !op_row(body, i)) return false;
    if (slot->expr->kind == EXPR_GATHER && !gather_row(body, slot)) return false;
    if (slot->expr->kind == EXPR_ACC) slot->row.data = acc;
    if (slot->expr->kind == EXPR_INPUT) {
      const Tensor *x = input_of(body, slot->expr->input);
      slot->row.data = (const char *)x->data + (size_t)grid_offset(&body->rows, slot->strides) * dtype_bytes[x->dtype];
    }
    if (slot->expr->kind == EXPR_INDEX && slot->expr->axis > 0) {
      *(int32_t *)slot->buffer = (int32_t)body->rows.index[body->rows.rank - slot->expr->axis];
    }
  }
  return true;
}

/* The last slot is the whole expression; if it is a leaf it may have a stride of 0. */
static void store_row(const Body *body, void *to, size_t bytes) {
  RowOperand row = body->slots[body->list.n - 1].row;
  for (int64_t i = 0; i < body->length; i++) {
    memcpy((char *)to + (size_t)i * bytes, (const char *)row.data + (size_t)(i * row.stride) * bytes, bytes);
  }
}

static bool compute(Body *body, const Tensor *acc, Tensor *out) {
  size_t bytes = dtype_bytes[out->dtype];
  for (int64_t row = 0; row < body->rows.points; row++, grid_next(&body->rows)) {
    if (!compute_row(body, acc ? (const float *)acc->data + row * body->length : NULL)) return false;
    store_row(body, (char *)out->data + (size_t)(row * body->length) * bytes, bytes);
  }
  return true;
}

/* Row by row along the last axis: a buffer of one row for each slot, whatever the size of the domain. */
bool eval_expr(const EvalNode *in, const Tensor *acc, Tensor *out) {
  Arena *scratch = arena_create();
  Body body = {.in = in, .list = expr_list(scratch, in->node->attr.expr)};
  body.rows = grid_of(out->rank ? out->rank - 1 : 0, out->dims);
  body.length = out->rank ? out->dims[out->rank - 1] : 1;
  body.slots = ARENA_ARRAY(scratch, Slot, body.list.n);
  for (uint32_t i = 0; i < body.list.n; i++) {
    body.slots[i].expr = body.list.items[i];
    prepare(&body, &body.slots[i], scratch);
  }
  bool ok = body.rows.points == 0 || body.length == 0 || compute(&body, acc, out);
  arena_destroy(scratch);
  return ok;
}

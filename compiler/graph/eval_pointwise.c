/* In: operands that broadcast. Out: a pointwise operation on them, element by element as ops.def defines it: f32 in
 * double, rounded once; i32 wraps; NaN goes through maximum, minimum and relu. Refuses integer division by zero. */
#include <math.h>
#include <string.h>

#include "graph/eval_run.h"

static const double PI = 3.14159265358979323846;

// ---- f32 ----

static double negate(double x) { return -x; }
static double reciprocal_root(double x) { return 1 / sqrt(x); }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double relu(double x) { return x < 0 ? 0 : x; }
static double silu(double x) { return x * sigmoid(x); }
static double gelu(double x) { return x == -INFINITY ? 0 : x / 2 * (1 + erf(x / sqrt(2))); }
static double gelu_tanh(double x) { return x / 2 * (1 + tanh(sqrt(2 / PI) * (x + 0.044715 * x * x * x))); }
static double quick_gelu(double x) { return x * sigmoid(1.702 * x); }

typedef double (*UnaryF32)(double);
static const UnaryF32 unary_f32[N_OPS] = {
    [OP_NEG] = negate, [OP_EXP] = exp,   [OP_LOG] = log,         [OP_SQRT] = sqrt,
    [OP_ABS] = fabs,   [OP_SIN] = sin,   [OP_COS] = cos,         [OP_TANH] = tanh,
    [OP_ERF] = erf,    [OP_RELU] = relu, [OP_RSQRT] = reciprocal_root,
    [OP_SILU] = silu,  [OP_GELU] = gelu, [OP_SIGMOID] = sigmoid, [OP_GELU_TANH] = gelu_tanh,
    [OP_QUICK_GELU] = quick_gelu};

static double add(double x, double y) { return x + y; }
static double subtract(double x, double y) { return x - y; }
static double multiply(double x, double y) { return x * y; }
static double divide(double x, double y) { return x / y; }
static double maximum(double x, double y) { return isnan(x) || x > y ? x : y; }
static double minimum(double x, double y) { return isnan(x) || x < y ? x : y; }

typedef double (*BinaryF32)(double, double);
static const BinaryF32 binary_f32[N_OPS] = {[OP_ADD] = add,    [OP_SUB] = subtract,    [OP_MUL] = multiply,
                                            [OP_DIV] = divide, [OP_MAXIMUM] = maximum, [OP_MINIMUM] = minimum};

// ---- i32, as int64_t, wrapped by who stores it ----

static int64_t add_i32(int64_t x, int64_t y) { return x + y; }
static int64_t subtract_i32(int64_t x, int64_t y) { return x - y; }
static int64_t multiply_i32(int64_t x, int64_t y) { return x * y; }
static int64_t floor_divide(int64_t x, int64_t y) { return x / y - (x % y != 0 && (x < 0) != (y < 0)); }
static int64_t floor_modulo(int64_t x, int64_t y) { return x - floor_divide(x, y) * y; }
static int64_t maximum_i32(int64_t x, int64_t y) { return x > y ? x : y; }
static int64_t minimum_i32(int64_t x, int64_t y) { return x < y ? x : y; }

typedef int64_t (*BinaryI32)(int64_t, int64_t);
static const BinaryI32 binary_i32[N_OPS] = {
    [OP_ADD] = add_i32,           [OP_SUB] = subtract_i32,      [OP_MUL] = multiply_i32,    [OP_FLOORDIV] = floor_divide,
    [OP_FLOORMOD] = floor_modulo, [OP_MAXIMUM] = maximum_i32, [OP_MINIMUM] = minimum_i32};

static int32_t wrapped(int64_t x) {
  uint32_t low = (uint32_t)x;
  int32_t result;
  memcpy(&result, &low, sizeof result);
  return result;
}

static int32_t truncated(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN; }

// ---- comparisons, exact in double for both types ----

static bool equal(double x, double y) { return x == y; }
static bool not_equal(double x, double y) { return x != y; }
static bool less(double x, double y) { return x < y; }
static bool greater(double x, double y) { return x > y; }
static bool at_most(double x, double y) { return x <= y; }
static bool at_least(double x, double y) { return x >= y; }

typedef bool (*Comparison)(double, double);
static const Comparison comparisons[N_OPS] = {[OP_EQ] = equal,   [OP_NE] = not_equal, [OP_LT] = less,
                                              [OP_GT] = greater, [OP_LE] = at_most,   [OP_GE] = at_least};

// ---- rows ----

static double number_at(DType dtype, RowOperand x, int64_t i) {
  if (dtype == DTYPE_F32) return (double)((const float *)x.data)[i * x.stride];
  if (dtype == DTYPE_I32) return ((const int32_t *)x.data)[i * x.stride];
  return ((const uint8_t *)x.data)[i * x.stride];
}

static void convert_row(OpKind op, DType dtype, RowOperand x, int64_t n, void *out) {
  for (int64_t i = 0; i < n; i++) {
    double number = number_at(dtype, x, i);
    if (op == OP_TO_F32) ((float *)out)[i] = (float)number;
    else ((int32_t *)out)[i] = truncated(number);
  }
}

static void where_row(DType dtype, const RowOperand *args, int64_t n, void *out) {
  const uint8_t *condition = args[0].data;
  size_t bytes = dtype_bytes[dtype];
  for (int64_t i = 0; i < n; i++) {
    RowOperand chosen = condition[i * args[0].stride] ? args[1] : args[2];
    memcpy((char *)out + (size_t)i * bytes, (const char *)chosen.data + (size_t)(i * chosen.stride) * bytes, bytes);
  }
}

static void bool_row(OpKind op, const RowOperand *args, int64_t n, uint8_t *out) {
  const uint8_t *x = args[0].data, *y = op == OP_NOT ? x : args[1].data;
  int64_t stride_x = args[0].stride, stride_y = op == OP_NOT ? stride_x : args[1].stride;
  for (int64_t i = 0; i < n; i++) {
    bool a = x[i * stride_x], b = y[i * stride_y];
    out[i] = op == OP_NOT ? !a : op == OP_AND ? (a && b) : (a || b);
  }
}

static bool i32_row(OpKind op, const RowOperand *args, int64_t n, int32_t *out) {
  const int32_t *x = args[0].data;
  if (op == OP_NEG) {
    for (int64_t i = 0; i < n; i++) out[i] = wrapped(-(int64_t)x[i * args[0].stride]);
    return true;
  }
  const int32_t *y = args[1].data;
  bool divides = op == OP_FLOORDIV || op == OP_FLOORMOD;
  for (int64_t i = 0; i < n; i++) {
    int32_t divisor = y[i * args[1].stride];
    if (divides && divisor == 0) return false;
    out[i] = wrapped(binary_i32[op](x[i * args[0].stride], divisor));
  }
  return true;
}

static void f32_row(OpKind op, const RowOperand *args, int64_t n, float *out) {
  const float *x = args[0].data;
  if (op_table[op].category == CATEGORY_UNARY) {
    for (int64_t i = 0; i < n; i++) out[i] = (float)unary_f32[op]((double)x[i * args[0].stride]);
    return;
  }
  const float *y = args[1].data;
  for (int64_t i = 0; i < n; i++) {
    out[i] = (float)binary_f32[op]((double)x[i * args[0].stride], (double)y[i * args[1].stride]);
  }
}

bool eval_row(OpKind op, DType dtype, const RowOperand *args, int64_t n, void *out) {
  if (op == OP_WHERE) {
    where_row(dtype, args, n, out);
  } else if (op == OP_TO_F32 || op == OP_TO_I32) {
    convert_row(op, dtype, args[0], n, out);
  } else if (comparisons[op]) {
    for (int64_t i = 0; i < n; i++) {
      ((uint8_t *)out)[i] = comparisons[op](number_at(dtype, args[0], i), number_at(dtype, args[1], i));
    }
  } else if (dtype == DTYPE_BOOL) {
    bool_row(op, args, n, out);
  } else if (dtype == DTYPE_I32) {
    return i32_row(op, args, n, out);
  } else {
    f32_row(op, args, n, out);
  }
  return true;
}

// ---- nodes ----

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
      return eval_fault(in, DIAG_RUN_ARITHMETIC, "integer division by zero");
    }
    to += (size_t)length * dtype_bytes[out->dtype];
  }
  return true;
}

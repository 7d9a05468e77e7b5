/* In: expressions. Out: their operations in order, each emitted once for all vectors of a bundle, by the function that
 * its row of ops.def names. LLVM runs no passes over this IR (codegen.h), so what must not be computed twice is not
 * emitted twice.
 *
 * NaN propagates as in PyTorch; integers wrap; nothing traps. Every operation is the same sequence of instructions for
 * each lane, so an element does not depend on its neighbours; the reference interpreter (graph/eval*.c) shares no code
 * with it. */
#include "kernels/emit_expr.h"

#include <string.h>

#include "base/check.h"
#include "base/map.h"
#include "base/vec.h"
#include "codegen/math.h"
#include "tfm/abi/program.h"

// ---- an expression as a list ----

typedef struct Flattener {
  Arena *arena;
  Map numbers; /* Expr * -> its number in the list + 1 */
  VEC(const Expr *) nodes;
  bool (*varies)(const void *context, const Expr *leaf);
  const void *context;
} Flattener;

static uint32_t number_of(Flattener *f, const Expr *expr) {
  MapEntry *entry = map_find(&f->numbers, &expr, sizeof expr);
  return entry ? (uint32_t)(uintptr_t)entry->value : 0;
}

static void flatten(Flattener *f, const Expr *expr) {
  if (number_of(f, expr)) return;
  for (uint32_t i = 0; i < expr->n_args; i++) flatten(f, expr->args[i]);
  vec_push(f->arena, &f->nodes, expr);
  map_put_n(&f->numbers, &expr, sizeof expr, (void *)(uintptr_t)f->nodes.n);
}

/* Whether the value is the same in all columns of a row. Constants are; an operation is if all its arguments are. */
static bool is_per_row(Flattener *f, const ExprProgram *program, uint32_t i) {
  const Expr *expr = program->nodes[i];
  if (expr->kind == EXPR_CONST) return true;
  if (expr->kind != EXPR_OP) return !f->varies(f->context, expr);
  for (uint32_t k = 0; k < expr->n_args; k++)
    if (!program->per_row[program->args[i][k]]) return false;
  return true;
}

ExprProgram expr_program(Arena *arena, const Expr *expr, bool (*varies)(const void *context, const Expr *leaf),
                         const void *context) {
  Flattener f = {.arena = arena, .numbers = map_new(arena), .varies = varies, .context = context};
  flatten(&f, expr);
  ExprProgram program = {.n = (uint32_t)f.nodes.n, .nodes = f.nodes.items};
  program.args = arena_array(arena, program.n, sizeof *program.args);
  program.per_row = ARENA_ARRAY(arena, bool, program.n);
  program.values = ARENA_ARRAY(arena, Lanes, program.n);
  for (uint32_t i = 0; i < program.n; i++) {
    for (uint32_t k = 0; k < program.nodes[i]->n_args; k++)
      program.args[i][k] = number_of(&f, program.nodes[i]->args[k]) - 1;
    program.per_row[i] = is_per_row(&f, &program, i);
  }
  return program;
}

bool expr_divides(const ExprProgram *program) {
  for (uint32_t i = 0; i < program->n; i++) {
    const Expr *expr = program->nodes[i];
    if (expr->kind == EXPR_OP && (expr->op == OP_FLOORDIV || expr->op == OP_FLOORMOD)) return true;
  }
  return false;
}

/* Whether the expression takes so many registers that fewer vectors must be computed at once. A polynomial holds its
 * argument and a sum across all its steps. That 24 operations are long without one is a round guess. */
bool expr_is_long(const ExprProgram *program) {
  for (uint32_t i = 0; i < program->n; i++)
    if (program->nodes[i]->kind == EXPR_OP && op_table[program->nodes[i]->op].cost == COST_POLYNOMIAL) return true;
  return program->n > 24;
}

typedef Lanes (*EmitOp)(ExprEmitter *emitter, const Expr *expr, const Lanes *args);

static bool is_integer(const Expr *expr) { return expr->args[0]->dtype == DTYPE_I32; }

// ---- unary ----

#define FUNCTION(name, function)                                                                 \
  static Lanes emit_op_##name(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {                 \
    (void)expr;                                                                                  \
    return function(emitter->e, args[0]);                                                        \
  }
FUNCTION(exp, math_exp)
FUNCTION(log, math_log)
FUNCTION(sqrt, lanes_sqrt)
FUNCTION(abs, lanes_abs)
FUNCTION(sin, math_sin)
FUNCTION(cos, math_cos)
FUNCTION(rsqrt, math_rsqrt)
FUNCTION(tanh, math_tanh)
FUNCTION(sigmoid, math_sigmoid)
FUNCTION(erf, math_erf)
FUNCTION(silu, math_silu)
FUNCTION(gelu, math_gelu)
FUNCTION(gelu_tanh, math_gelu_tanh)
FUNCTION(quick_gelu, math_quick_gelu)

static Lanes emit_op_neg(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  return is_integer(expr) ? lanes_unary(emitter->e, LLVMBuildNeg, args[0]) : lanes_neg(emitter->e, args[0]);
}

/* The comparison fails for NaN, which therefore stays. */
static Lanes emit_op_relu(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  (void)expr;
  Lanes zero = lanes_number(emitter->e, 0);
  return lanes_select(emitter->e, lanes_compare(emitter->e, LLVMRealOLT, args[0], zero), zero, args[0]);
}

/* Numbers of 2^23 or more, infinities and NaN are whole or stay; below, adding and subtracting 2^23 rounds, on every
 * target alike. The sign is put back, so that -0.2 becomes -0. */
static Lanes rounded(Emitter *e, Lanes x) {
  Lanes size = lanes_abs(e, x), magic = lanes_number(e, 0x1p23);
  Lanes near = lanes_sub(e, lanes_add(e, size, magic), magic);
  return lanes_select(e, lanes_compare(e, LLVMRealOLT, size, magic), lanes_with_sign(e, near, x), x);
}

static Lanes emit_op_round(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  (void)expr;
  return rounded(emitter->e, args[0]);
}

/* The nearest whole number, corrected where it lies on the wrong side. */
static Lanes emit_op_floor(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  (void)expr;
  Emitter *e = emitter->e;
  Lanes near = rounded(e, args[0]), below = lanes_sub(e, near, lanes_number(e, 1));
  return lanes_select(e, lanes_compare(e, LLVMRealOGT, near, args[0]), below, near);
}

static Lanes emit_op_ceil(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  (void)expr;
  Emitter *e = emitter->e;
  Lanes near = rounded(e, args[0]), above = lanes_with_sign(e, lanes_add(e, near, lanes_number(e, 1)), args[0]);
  return lanes_select(e, lanes_compare(e, LLVMRealOLT, near, args[0]), above, near);
}

static Lanes emit_op_not(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  (void)expr;
  return lanes_unary(emitter->e, LLVMBuildNot, args[0]);
}

static Lanes emit_op_to_f32(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  DType from = expr->args[0]->dtype;
  if (from == DTYPE_F32) return args[0];
  return lanes_convert(emitter->e, from == DTYPE_BOOL ? LLVMUIToFP : LLVMSIToFP, args[0], emitter->e->f32);
}

/* LLVM defines the conversion only for numbers in range: elsewhere its result is poison. So other numbers are replaced
 * before it, and the result after it by the smallest i32. */
static Lanes emit_op_to_i32(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  Emitter *e = emitter->e;
  DType from = expr->args[0]->dtype;
  if (from == DTYPE_I32) return args[0];
  if (from == DTYPE_BOOL) return lanes_convert(e, LLVMZExt, args[0], e->i32);
  Lanes fits = lanes_compare(e, LLVMRealOLT, lanes_abs(e, args[0]), lanes_number(e, 0x1p31));
  Lanes converted = lanes_convert(e, LLVMFPToSI, lanes_select(e, fits, args[0], lanes_number(e, 0)), e->i32);
  return lanes_select(e, fits, converted, lanes_bits(e, 0x80000000u));
}

// ---- arithmetic ----

#define ARITHMETIC(name, real, integer)                                                          \
  static Lanes emit_op_##name(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {                 \
    return lanes_binary(emitter->e, is_integer(expr) ? integer : real, args[0], args[1]);        \
  }
ARITHMETIC(add, LLVMBuildFAdd, LLVMBuildAdd)
ARITHMETIC(sub, LLVMBuildFSub, LLVMBuildSub)
ARITHMETIC(mul, LLVMBuildFMul, LLVMBuildMul)

static Lanes emit_op_div(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  (void)expr;
  return lanes_div(emitter->e, args[0], args[1]);
}

/* Notes a division by zero in a lane that is in use. Lanes beyond the columns hold arbitrary numbers, zeros included,
 * and must not raise a fault. */
static void note_fault(ExprEmitter *emitter, Lanes is_zero) {
  Emitter *e = emitter->e;
  for (unsigned i = 0; i < e->n_vectors; i++) {
    LLVMValueRef lanes = is_zero.v[i];
    if (emitter->use) lanes = LLVMBuildAnd(e->builder, lanes, emitter->use[i], "");
    LLVMValueRef bits = LLVMBuildBitCast(e->builder, lanes, e->i16, "");
    LLVMValueRef any = emit_icmp(e, LLVMIntNE, bits, LLVMConstNull(e->i16));
    LLVMValueRef fault = emit_select(e, any, emit_i32(e, TFM_FAULT_DIVISION), emit_i32(e, 0));
    LLVMValueRef all = LLVMBuildOr(e->builder, emit_load(e, e->i32, emitter->fault, 4), fault, "");
    emit_store(e, all, emitter->fault, 4);
  }
}

/* Quotient (or rest) rounded down, as in Python. Vectors have no integer division, but the quotient of two i32
 * computed in double and then truncated is the exact one: a double holds every i32, and a quotient that is no integer
 * is further from the next integer than half a unit of its 53 bits. A divisor of 0 is replaced by 1, and so is -1
 * under the smallest i32, whose quotient does not fit (it wraps to itself). */
static Lanes divide_down(ExprEmitter *emitter, const Lanes *args, bool rest) {
  Emitter *e = emitter->e;
  Lanes zero = lanes_bits(e, 0), one = lanes_bits(e, 1), n = args[0], d = args[1];
  Lanes is_zero = lanes_icompare(e, LLVMIntEQ, d, zero);
  note_fault(emitter, is_zero);
  Lanes wraps = lanes_binary(e, LLVMBuildAnd, lanes_icompare(e, LLVMIntEQ, n, lanes_bits(e, 0x80000000u)),
                             lanes_icompare(e, LLVMIntEQ, d, lanes_bits(e, 0xffffffffu)));
  d = lanes_select(e, lanes_binary(e, LLVMBuildOr, is_zero, wraps), one, d);
  Lanes real = lanes_div(e, lanes_convert(e, LLVMSIToFP, n, e->f64), lanes_convert(e, LLVMSIToFP, d, e->f64));
  Lanes q = lanes_convert(e, LLVMFPToSI, real, e->i32);
  Lanes r = lanes_binary(e, LLVMBuildSub, n, lanes_binary(e, LLVMBuildMul, q, d));
  Lanes opposite = lanes_icompare(e, LLVMIntSLT, lanes_binary(e, LLVMBuildXor, r, d), zero);
  Lanes adjust = lanes_binary(e, LLVMBuildAnd, opposite, lanes_icompare(e, LLVMIntNE, r, zero));
  if (rest) return lanes_select(e, adjust, lanes_binary(e, LLVMBuildAdd, r, d), r);
  return lanes_select(e, adjust, lanes_binary(e, LLVMBuildSub, q, one), q);
}

static Lanes emit_op_floordiv(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  (void)expr;
  return divide_down(emitter, args, false);
}

static Lanes emit_op_floormod(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  (void)expr;
  return divide_down(emitter, args, true);
}

// ---- comparison and choice ----

/* Ordered comparisons would drop a NaN in the first argument; it is put back afterwards, because PyTorch propagates
 * it. */
static Lanes extreme(ExprEmitter *emitter, const Expr *expr, const Lanes *args, LLVMRealPredicate real,
                     LLVMIntPredicate integer) {
  Emitter *e = emitter->e;
  if (is_integer(expr)) return lanes_select(e, lanes_icompare(e, integer, args[0], args[1]), args[0], args[1]);
  Lanes chosen = lanes_select(e, lanes_compare(e, real, args[0], args[1]), args[0], args[1]);
  Lanes none = lanes_compare(e, LLVMRealUNO, args[0], args[1]);
  return lanes_select(e, none, lanes_number(e, (double)__builtin_nanf("")), chosen);
}

static Lanes emit_op_maximum(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  return extreme(emitter, expr, args, LLVMRealOGT, LLVMIntSGT);
}

static Lanes emit_op_minimum(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  return extreme(emitter, expr, args, LLVMRealOLT, LLVMIntSLT);
}

static Lanes compare(ExprEmitter *emitter, const Expr *expr, const Lanes *args, LLVMRealPredicate real,
                     LLVMIntPredicate integer) {
  return is_integer(expr) ? lanes_icompare(emitter->e, integer, args[0], args[1])
                          : lanes_compare(emitter->e, real, args[0], args[1]);
}

#define COMPARISON(name, real, integer)                                                          \
  static Lanes emit_op_##name(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {                 \
    return compare(emitter, expr, args, real, integer);                                          \
  }
COMPARISON(eq, LLVMRealOEQ, LLVMIntEQ)
COMPARISON(ne, LLVMRealUNE, LLVMIntNE)
COMPARISON(lt, LLVMRealOLT, LLVMIntSLT)
COMPARISON(gt, LLVMRealOGT, LLVMIntSGT)
COMPARISON(le, LLVMRealOLE, LLVMIntSLE)
COMPARISON(ge, LLVMRealOGE, LLVMIntSGE)

static Lanes emit_op_and(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  (void)expr;
  return lanes_binary(emitter->e, LLVMBuildAnd, args[0], args[1]);
}

static Lanes emit_op_or(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  (void)expr;
  return lanes_binary(emitter->e, LLVMBuildOr, args[0], args[1]);
}

static Lanes emit_op_where(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  (void)expr;
  return lanes_select(emitter->e, args[0], args[1], args[2]);
}

// ---- the table of operations ----

/* The column `code` of the pointwise operations. */
#define EMIT_SOURCE(code) NULL
#define EMIT_UNARY(code) emit_op_##code
#define EMIT_BINARY(code) emit_op_##code
#define EMIT_TERNARY(code) emit_op_##code
#define EMIT_VIEW(code) NULL
#define EMIT_REDUCE(code) NULL
#define EMIT_CONTRACT(code) NULL
#define EMIT_OTHER(code) NULL
static const EmitOp emitters[N_OPS] = {
#define OP(Enum, text, category, least, most, takes, gives, shape, eval, code, ...) [OP_##Enum] = EMIT_##category(code),
#include "graph/ops.def"
};

static Lanes emit_op(ExprEmitter *emitter, const Expr *expr, const Lanes *args) {
  CHECK(expr->op < N_OPS && emitters[expr->op], "operation %d in an expression", expr->op);
  return emitters[expr->op](emitter, expr, args);
}

// ---- its code ----

static Lanes emit_const(Emitter *e, const Expr *expr) {
  switch (expr->dtype) {
    case DTYPE_F32: return lanes_number(e, expr->number);
    case DTYPE_I32: return lanes_splat(e, emit_i32(e, (int32_t)expr->integer));
    case DTYPE_BOOL: return lanes_splat(e, LLVMConstInt(e->i1, expr->integer != 0, 0));
    default: UNREACHABLE("a constant of type %d", expr->dtype);
  }
}

static Lanes emit_node(ExprEmitter *emitter, uint32_t i) {
  ExprProgram *program = emitter->program;
  const Expr *expr = program->nodes[i];
  if (expr->kind == EXPR_CONST) return emit_const(emitter->e, expr);
  if (expr->kind != EXPR_OP) return emitter->leaf(emitter->context, expr);
  Lanes args[3];
  for (uint32_t k = 0; k < expr->n_args; k++) args[k] = program->values[program->args[i][k]];
  return emit_op(emitter, expr, args);
}

/* One vector is computed and stands for all of the bundle, since it is the same in every column. */
void emit_expr_per_row(ExprEmitter *emitter) {
  ExprProgram *program = emitter->program;
  unsigned n_vectors = emitter->e->n_vectors;
  emitter->e->n_vectors = 1;
  for (uint32_t i = 0; i < program->n; i++)
    if (program->per_row[i]) program->values[i] = lanes_same(emit_node(emitter, i).v[0]);
  emitter->e->n_vectors = n_vectors;
}

Lanes emit_expr(ExprEmitter *emitter) {
  ExprProgram *program = emitter->program;
  for (uint32_t i = 0; i < program->n; i++)
    if (!program->per_row[i]) program->values[i] = emit_node(emitter, i);
  return program->values[program->n - 1];
}

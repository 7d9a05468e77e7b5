/* In: expressions. Out: their operations in order, each emitted once for all vectors of a bundle. LLVM runs no passes
 * over this IR (codegen.h), so what must not be computed twice is not emitted twice. */
#include "kernels/emit_expr.h"

#include <string.h>

#include "base/check.h"
#include "base/map.h"
#include "base/vec.h"

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

/* In: pieces of expressions. Out: expressions, compared and copied as DAGs: work is linear in the number of different
 * nodes, however often they are shared. */
#include "graph/expr.h"

#include <string.h>

#include "base/vec.h"


static Expr *leaf(Arena *arena, ExprKind kind, DType dtype) {
  Expr *expr = ARENA_NEW(arena, Expr);
  expr->kind = kind;
  expr->dtype = dtype;
  return expr;
}

Expr *expr_op(Arena *arena, OpKind op, DType dtype, Expr *a, Expr *b, Expr *c) {
  Expr *expr = leaf(arena, EXPR_OP, dtype);
  expr->op = op;
  expr->args[0] = a;
  expr->args[1] = b;
  expr->args[2] = c;
  expr->n_args = c ? 3 : b ? 2 : 1;
  return expr;
}

Expr *expr_acc(Arena *arena) { return leaf(arena, EXPR_ACC, DTYPE_F32); }

Expr *expr_input(Arena *arena, DType dtype, uint32_t input) {
  Expr *expr = leaf(arena, EXPR_INPUT, dtype);
  expr->input = input;
  return expr;
}

Expr *expr_number(Arena *arena, double number) {
  Expr *expr = leaf(arena, EXPR_CONST, DTYPE_F32);
  expr->number = number;
  return expr;
}

Expr *expr_integer(Arena *arena, DType dtype, int64_t integer) {
  Expr *expr = leaf(arena, EXPR_CONST, dtype);
  expr->integer = integer;
  return expr;
}

Expr *expr_size(Arena *arena, DType dtype, const Size *size) {
  Expr *expr = leaf(arena, EXPR_SIZE, dtype);
  expr->size = size;
  return expr;
}

Expr *expr_index(Arena *arena, uint32_t axis) {
  Expr *expr = leaf(arena, EXPR_INDEX, DTYPE_I32);
  expr->axis = axis;
  return expr;
}

Expr *expr_gather(Arena *arena, DType dtype, uint32_t table, uint32_t ids) {
  Expr *expr = leaf(arena, EXPR_GATHER, dtype);
  expr->input = table;
  expr->ids = ids;
  return expr;
}

// ---- walking ----

typedef struct Walk {
  Arena *arena;
  Map numbers; /* address of an Expr -> its number in the list + 1 */
  VEC(const Expr *) list;
  VEC(uint32_t) args[3];
} Walk;

static uint32_t walk(Walk *w, const Expr *expr) {
  MapEntry *known = map_find(&w->numbers, &expr, sizeof expr);
  if (known) return (uint32_t)((uintptr_t)known->value - 1);
  uint32_t args[3] = {0};
  for (uint32_t i = 0; i < expr->n_args; i++) args[i] = walk(w, expr->args[i]);
  for (uint32_t i = 0; i < 3; i++) vec_push(w->arena, &w->args[i], args[i]);
  vec_push(w->arena, &w->list, expr);
  map_put_n(&w->numbers, &expr, sizeof expr, (void *)(uintptr_t)w->list.n);
  return (uint32_t)w->list.n - 1;
}

ExprList expr_list(Arena *arena, const Expr *root) {
  Walk w = {.arena = arena, .numbers = map_new(arena)};
  walk(&w, root);
  ExprList list = {.items = w.list.items, .n = (uint32_t)w.list.n};
  for (uint32_t i = 0; i < 3; i++) list.args[i] = w.args[i].items;
  return list;
}

/* What makes two expressions equal, their arguments replaced by numbers of equality classes. */
typedef struct Key {
  int64_t integer;
  const Size *size;
  uint32_t kind, dtype, op, n_args, args[3], input, ids, axis, number[2];
} Key;

static Key key_of(const Expr *expr, const uint32_t *args) {
  Key key;
  memset(&key, 0, sizeof key);
  key.kind = expr->kind;
  key.dtype = expr->dtype;
  key.n_args = expr->n_args;
  if (expr->kind == EXPR_OP) key.op = expr->op;
  if (expr->kind == EXPR_SIZE) key.size = expr->size;
  if (expr->kind == EXPR_INDEX) key.axis = expr->axis;
  if (expr->kind == EXPR_GATHER) key.ids = expr->ids;
  if (expr->kind == EXPR_GATHER || expr->kind == EXPR_INPUT) key.input = expr->input;
  if (expr->kind == EXPR_CONST && expr->dtype == DTYPE_F32) memcpy(key.number, &expr->number, sizeof key.number);
  if (expr->kind == EXPR_CONST && expr->dtype != DTYPE_F32) key.integer = expr->integer;
  memcpy(key.args, args, sizeof key.args);
  return key;
}

/* The equality class of `root`; `classes` holds those seen so far. */
static uint32_t class_of(Arena *arena, Map *classes, const Expr *root) {
  ExprList list = expr_list(arena, root);
  uint32_t *class = ARENA_ARRAY(arena, uint32_t, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    uint32_t args[3] = {0};
    for (uint32_t j = 0; j < list.items[i]->n_args; j++) args[j] = class[list.args[j][i]];
    Key key = key_of(list.items[i], args);
    MapEntry *entry = map_find(classes, &key, sizeof key);
    if (!entry) entry = map_put_n(classes, &key, sizeof key, (void *)(uintptr_t)(classes->n + 1));
    class[i] = (uint32_t)(uintptr_t)entry->value;
  }
  return class[list.n - 1];
}

bool expr_equal(const Expr *a, const Expr *b) {
  if (a == b) return true;
  if (!a || !b || a->kind != b->kind || a->dtype != b->dtype || a->n_args != b->n_args) return false;
  Arena *scratch = arena_create();
  Map classes = map_new(scratch);
  bool equal = class_of(scratch, &classes, a) == class_of(scratch, &classes, b);
  arena_destroy(scratch);
  return equal;
}

Expr *expr_rename(Arena *arena, const Expr *expr, const uint32_t *inputs, Expr *acc) {
  Arena *scratch = arena_create();
  ExprList list = expr_list(scratch, expr);
  Expr **copies = ARENA_ARRAY(scratch, Expr *, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    const Expr *old = list.items[i];
    Expr *copy = copies[i] = old->kind == EXPR_ACC && acc ? acc : arena_copy(arena, old, sizeof *old);
    if (old->kind == EXPR_INPUT || old->kind == EXPR_GATHER) copy->input = inputs[old->input];
    if (old->kind == EXPR_GATHER) copy->ids = inputs[old->ids];
    for (uint32_t j = 0; j < old->n_args; j++) copy->args[j] = copies[list.args[j][i]];
  }
  Expr *root = copies[list.n - 1];
  arena_destroy(scratch);
  return root;
}

uint32_t expr_count(const Expr *expr) {
  Arena *scratch = arena_create();
  ExprList list = expr_list(scratch, expr);
  uint32_t count = 0;
  for (uint32_t i = 0; i < list.n; i++) count += list.items[i]->kind == EXPR_OP;
  arena_destroy(scratch);
  return count;
}

bool expr_uses_acc(const Expr *expr) {
  Arena *scratch = arena_create();
  ExprList list = expr_list(scratch, expr);
  bool uses = false;
  for (uint32_t i = 0; i < list.n && !uses; i++) uses = list.items[i]->kind == EXPR_ACC;
  arena_destroy(scratch);
  return uses;
}

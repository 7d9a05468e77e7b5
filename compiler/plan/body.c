/* In: expressions of nodes. Out: the same with fewer operands, parts of them computed before into buffers. */
#include <string.h>

#include "plan/nest.h"

Body body_new(const Node *node, uint32_t rank, const Size *const *dims, const Expr *expr) {
  Body body = {.node = node, .rank = rank, .expr = expr};
  memcpy(body.dims, dims, rank * sizeof *dims);
  return body;
}

// ---- counting ----

/* For every subexpression the set of operands it needs, as one byte per different operand of the root. */
typedef struct Needs {
  ExprList list;
  uint32_t n; /* different operands */
  uint8_t **sets;
  bool *has_acc;
} Needs;

static uint32_t number_of(Map *numbers, char kind, const void *key, size_t size) {
  char bytes[32];
  bytes[0] = kind;
  memcpy(bytes + 1, key, size);
  MapEntry *entry = map_find(numbers, bytes, size + 1);
  if (!entry) entry = map_put_n(numbers, bytes, size + 1, (void *)(uintptr_t)numbers->n);
  return (uint32_t)(uintptr_t)entry->value;
}

/* The operands of a leaf: at most two. */
static uint32_t leaf_operands(Map *numbers, const Expr *expr, uint32_t *operands) {
  switch (expr->kind) {
    case EXPR_INPUT: operands[0] = number_of(numbers, 'i', &expr->input, sizeof expr->input); return 1;
    case EXPR_SIZE: {
      struct { const Size *size; uint64_t dtype; } key = {expr->size, expr->dtype};
      operands[0] = number_of(numbers, 's', &key, sizeof key);
      return 1;
    }
    case EXPR_GATHER: {
      uint32_t key[2] = {expr->input, expr->ids};
      operands[0] = number_of(numbers, 't', key, sizeof key);
      operands[1] = number_of(numbers, 'r', &expr->ids, sizeof expr->ids);
      return 2;
    }
    default: return 0;
  }
}

static Needs needs_of(Arena *scratch, const Expr *root, bool acc_is_operand) {
  Needs needs = {.list = expr_list(scratch, root)};
  Map numbers = map_new(scratch);
  uint32_t acc = 0;
  needs.sets = ARENA_ARRAY(scratch, uint8_t *, needs.list.n);
  needs.has_acc = ARENA_ARRAY(scratch, bool, needs.list.n);
  for (uint32_t i = 0; i < needs.list.n; i++) {
    const Expr *expr = needs.list.items[i];
    uint8_t *set = needs.sets[i] = arena_alloc(scratch, 2 * (size_t)needs.list.n + 1);
    uint32_t operands[2];
    for (uint32_t n = leaf_operands(&numbers, expr, operands); n-- > 0;) set[operands[n]] = 1;
    if (expr->kind == EXPR_ACC && acc_is_operand) set[number_of(&numbers, 'a', &acc, sizeof acc)] = 1;
    needs.has_acc[i] = expr->kind == EXPR_ACC && !acc_is_operand;
    for (uint32_t j = 0; j < expr->n_args; j++) {
      uint32_t arg = needs.list.args[j][i];
      for (size_t k = 0; k < numbers.n; k++) set[k] |= needs.sets[arg][k];
      needs.has_acc[i] |= needs.has_acc[arg];
    }
  }
  needs.n = (uint32_t)numbers.n;
  return needs;
}

static uint32_t count(const Needs *needs, uint32_t item) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < needs->n; k++) n += needs->sets[item][k];
  return n;
}

uint32_t body_operands(const Body *body) {
  Arena *scratch = arena_create();
  Needs needs = needs_of(scratch, body->expr, body->acc != NULL);
  uint32_t n = count(&needs, needs.list.n - 1);
  arena_destroy(scratch);
  return n;
}

bool expr_has_kind(Planner *p, const Expr *expr, ExprKind kind) {
  ExprList list = expr_list(p->arena, expr);
  for (uint32_t i = 0; i < list.n; i++)
    if (list.items[i]->kind == kind) return true;
  return false;
}

// ---- splitting ----

/* The subexpression with the most operands that one kernel can take; NULL if there is none. */
static const Expr *largest_part(const Needs *needs, uint32_t limit) {
  const Expr *best = NULL;
  uint32_t most = 1;
  for (uint32_t i = 0; i + 1 < needs->list.n; i++) {
    uint32_t n = count(needs, i);
    if (needs->has_acc[i] || n <= most || n > limit) continue;
    most = n;
    best = needs->list.items[i];
  }
  return best;
}

/* A copy of `root` in which `part` is `by`. */
static Expr *substitute(Planner *p, const Expr *root, const Expr *part, Expr *by) {
  ExprList list = expr_list(p->arena, root);
  Expr **copies = ARENA_ARRAY(p->arena, Expr *, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    if (list.items[i] == part) {
      copies[i] = by;
      continue;
    }
    copies[i] = arena_copy(p->arena, list.items[i], sizeof **list.items);
    for (uint32_t j = 0; j < copies[i]->n_args; j++) copies[i]->args[j] = copies[list.args[j][i]];
  }
  return copies[list.n - 1];
}

/* Computes `part` into a buffer of its own, which takes its place in the body. */
static void compute_part(Planner *p, Body *body, const Expr *part) {
  View place = place_new(p, part->dtype, body->rank, body->dims);
  Body before = *body;
  before.expr = part;
  Nest nest;
  nest_init(p, &nest, &before, &place);
  uint32_t fixed = expr_has_kind(p, part, EXPR_GATHER);
  nest_simplify(p, &nest, fixed, fixed);
  KernelSpec spec = nest_spec(&nest);
  plan_row_step(p, &nest, &spec, "pointwise");
  uint32_t input = (uint32_t)(body->node->inputs.n + body->parts.n);
  vec_push(p->arena, &body->parts, place);
  body->expr = substitute(p, body->expr, part, expr_input(p->arena, part->dtype, input));
}

bool body_split(Planner *p, Body *body, uint32_t limit) {
  while (body_operands(body) > limit) {
    Arena *scratch = arena_create();
    Needs needs = needs_of(scratch, body->expr, body->acc != NULL);
    const Expr *part = largest_part(&needs, limit);
    arena_destroy(scratch);
    if (!part) return false;
    compute_part(p, body, part);
  }
  return true;
}

void body_split_gathers(Planner *p, Body *body) {
  for (;;) {
    ExprList list = expr_list(p->arena, body->expr);
    uint32_t i = 0;
    while (i < list.n && list.items[i]->kind != EXPR_GATHER) i++;
    if (i == list.n) return;
    compute_part(p, body, list.items[i]);
  }
}

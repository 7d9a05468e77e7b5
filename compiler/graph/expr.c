/* In: pieces of expressions, or their text. Out: expressions, compared and copied as DAGs, and their text. What is
 * printed is read back to an equal expression with the same sharing, and so to the same text. Work is linear in the
 * number of different nodes, however often they are shared: a visit per path would be exponential. Refused: a text of
 * more than EXPR_MAX_OPERATIONS operations. */
#include "graph/expr.h"

#include <string.h>

#include "base/vec.h"
#include "graph/text.h"

// ---- making ----

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

bool expr_is_division(const Expr *expr) {
  return expr->kind == EXPR_OP && (expr->op == OP_FLOORDIV || expr->op == OP_FLOORMOD);
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

/* Arguments before their users; recursion is as deep as the expression, which EXPR_MAX_OPERATIONS bounds. */
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

/* See walk. The list is in `arena`; the expressions are not copied. */
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

/* Numbers go in by their bits: 0.0 and -0.0 differ, since 1/x tells them apart, and a NaN equals itself. */
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

/* The equality class of `root`; `classes` holds those seen so far. Two nodes are in one class if their keys are equal,
 * that is, if they are the same operation on arguments of the same classes. */
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

/* Copies each distinct subexpression once, so sharing survives. */
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

/* Counts operations, not leaves: that is the work for an element. */
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

static bool is_sum_of_terms(const Expr *expr) {
  return expr && expr->kind == EXPR_OP && expr->op == OP_ADD && expr->dtype == DTYPE_F32;
}

bool expr_attention_terms(const Expr *expr, uint32_t n, Expr **terms) {
  for (uint32_t i = n; --i > 0; expr = expr->args[0]) {
    if (!is_sum_of_terms(expr)) return false;
    terms[i] = expr->args[1];
    terms[i - 1] = expr->args[0];
  }
  return true;
}

Expr *expr_of_attention_terms(Arena *arena, uint32_t n, Expr *const *terms) {
  Expr *sum = terms[0];
  for (uint32_t i = 1; i < n; i++) sum = expr_op(arena, OP_ADD, DTYPE_F32, sum, terms[i], NULL);
  return sum;
}

// ---- printing ----

typedef struct Printer {
  StrBuf *out;
  const SizeTable *sizes;
  ExprList list;
  uint32_t *uses;    /* of each item of the list */
  uint32_t *letters; /* the number n of its name tn, + 1; 0: it has none */
} Printer;

static void print_leaf(Printer *p, const Expr *expr) {
  StrBuf *out = p->out;
  switch (expr->kind) {
    case EXPR_ACC: strbuf_add(out, "acc"); break;
    case EXPR_INPUT: strbuf_printf(out, "$%u", expr->input); break;
    case EXPR_INDEX: strbuf_printf(out, "index%u", expr->axis); break;
    case EXPR_GATHER: strbuf_printf(out, "gather($%u, $%u)", expr->input, expr->ids); break;
    case EXPR_SIZE:
      strbuf_printf(out, "size(%s, ", dtype_names[expr->dtype]);
      size_print(out, p->sizes, expr->size);
      strbuf_add_char(out, ')');
      break;
    case EXPR_CONST:
      if (expr->dtype == DTYPE_F32) print_f32(out, expr->number);
      else if (expr->dtype == DTYPE_BOOL) strbuf_add(out, expr->integer ? "true" : "false");
      else strbuf_printf(out, "%lld", (long long)expr->integer);
      break;
    case EXPR_OP: break;
  }
}

/* `define`: write the item out although it has a name, because this is the place that gives the name. */
static void print_item(Printer *p, uint32_t item, bool define) {
  const Expr *expr = p->list.items[item];
  if (p->letters[item] && !define) {
    strbuf_printf(p->out, "t%u", p->letters[item] - 1);
    return;
  }
  if (expr->kind != EXPR_OP) {
    print_leaf(p, expr);
    return;
  }
  strbuf_printf(p->out, "%s(", op_table[expr->op].name);
  for (uint32_t i = 0; i < expr->n_args; i++) {
    if (i) strbuf_add(p->out, ", ");
    print_item(p, p->list.args[i][item], false);
  }
  strbuf_add_char(p->out, ')');
}

/* A name for each operation that is used more than once, defined before its first use; leaves are short enough to
 * repeat. */
void expr_print(StrBuf *out, const SizeTable *sizes, const Expr *expr) {
  Arena *scratch = arena_create();
  Printer p = {.out = out, .sizes = sizes, .list = expr_list(scratch, expr)};
  p.uses = ARENA_ARRAY(scratch, uint32_t, p.list.n);
  p.letters = ARENA_ARRAY(scratch, uint32_t, p.list.n);
  for (uint32_t i = 0; i < p.list.n; i++) {
    for (uint32_t j = 0; j < p.list.items[i]->n_args; j++) p.uses[p.list.args[j][i]]++;
  }
  uint32_t n_letters = 0;
  for (uint32_t i = 0; i < p.list.n; i++) {
    if (p.uses[i] < 2 || p.list.items[i]->kind != EXPR_OP) continue;
    strbuf_printf(out, "t%u = ", n_letters);
    p.letters[i] = ++n_letters;
    print_item(&p, i, true);
    strbuf_add(out, "; ");
  }
  print_item(&p, p.list.n - 1, false);
  arena_destroy(scratch);
}

// ---- reading ----

typedef struct Reader {
  Arena *arena;
  SizeTable *sizes;
  const char *text;
  uint32_t n_inputs;
  const DType *inputs;
  VEC(Expr *) letters;
  uint32_t n_operations;
  const char *error;
} Reader;

static Expr *fail(Reader *r, const char *error) {
  if (!r->error) r->error = error;
  return NULL;
}

static Expr *read_expr(Reader *r);

/* "$3" */
static bool read_input(Reader *r, uint32_t *input) {
  int64_t number;
  const char *rest = r->text;
  if (!scan_char(&rest, '$') || !scan_integer(&rest, &number) || number < 0 || number >= r->n_inputs) {
    fail(r, "expected an input of the node, such as $0");
    return false;
  }
  r->text = rest;
  *input = (uint32_t)number;
  return true;
}

static Expr *read_size(Reader *r) {
  int dtype = scan_char(&r->text, '(') ? 0 : N_DTYPES;
  while (dtype < N_DTYPES && !scan_word(&r->text, dtype_names[dtype])) dtype++;
  if (dtype == N_DTYPES || !scan_char(&r->text, ',')) return fail(r, "expected size(type, size)");
  const Size *size = size_read(r->sizes, &r->text);
  if (!size || !scan_char(&r->text, ')')) return fail(r, "expected size(type, size)");
  return expr_size(r->arena, (DType)dtype, size);
}

static Expr *read_gather(Reader *r) {
  uint32_t table, ids;
  if (!scan_char(&r->text, '(')) return fail(r, "expected '('");
  if (!read_input(r, &table)) return NULL;
  if (!scan_char(&r->text, ',')) return fail(r, "expected ','");
  if (!read_input(r, &ids)) return NULL;
  if (!scan_char(&r->text, ')')) return fail(r, "expected ')'");
  return expr_gather(r->arena, r->inputs[table], table, ids);
}

static Expr *read_op(Reader *r, OpKind op) {
  if (++r->n_operations > EXPR_MAX_OPERATIONS) return fail(r, "too many operations in one expression");
  Expr *args[3] = {NULL};
  DType types[3], result;
  for (int i = 0; i < op_table[op].most; i++) {
    if (!scan_char(&r->text, i ? ',' : '(')) return fail(r, i ? "expected ','" : "expected '('");
    args[i] = read_expr(r);
    if (!args[i]) return NULL;
    types[i] = args[i]->dtype;
  }
  if (!scan_char(&r->text, ')')) return fail(r, "expected ')'");
  const char *fault = op_pointwise_type(op, types, &result);
  return fault ? fail(r, fault) : expr_op(r->arena, op, result, args[0], args[1], args[2]);
}

/* "t12", "index0": the number after the letters. */
static bool numbered(const char *name, size_t length, const char *letters, uint32_t *number) {
  size_t n = strlen(letters);
  if (length <= n || length > n + 6 || memcmp(name, letters, n) != 0) return false;
  *number = 0;
  for (size_t i = n; i < length; i++) {
    if (name[i] < '0' || name[i] > '9') return false;
    *number = *number * 10 + (uint32_t)(name[i] - '0');
  }
  return true;
}

/* What a word stands for: a leaf, a name that was given before, or an operation with its arguments. */
static Expr *read_named(Reader *r, const char *name, size_t length) {
  uint32_t number;
  if (length == 3 && memcmp(name, "acc", 3) == 0) return expr_acc(r->arena);
  if (length == 4 && memcmp(name, "true", 4) == 0) return expr_integer(r->arena, DTYPE_BOOL, 1);
  if (length == 5 && memcmp(name, "false", 5) == 0) return expr_integer(r->arena, DTYPE_BOOL, 0);
  if (length == 4 && memcmp(name, "size", 4) == 0) return read_size(r);
  if (length == 6 && memcmp(name, "gather", 6) == 0) return read_gather(r);
  if (numbered(name, length, "index", &number)) return expr_index(r->arena, number);
  if (numbered(name, length, "t", &number)) {
    return number < r->letters.n ? r->letters.items[number] : fail(r, "this name was not given before");
  }
  for (int op = 0; op < N_OPS; op++) {
    if (!op_is_pointwise((OpKind)op) || strlen(op_table[op].name) != length) continue;
    if (memcmp(op_table[op].name, name, length) == 0) return read_op(r, (OpKind)op);
  }
  return fail(r, "unknown operation in an expression");
}

static Expr *read_expr(Reader *r) {
  const char *name;
  size_t length;
  double number;
  int64_t integer;
  uint32_t input;
  if (scan_number(&r->text, &number)) return expr_number(r->arena, number);
  if (scan_integer(&r->text, &integer)) return expr_integer(r->arena, DTYPE_I32, integer);
  const char *begin = r->text;
  if (scan_name(&r->text, &name, &length)) {
    Expr *expr = read_named(r, name, length);
    if (!expr && r->text == name + length) r->text = begin; /* the name itself is what is wrong */
    return expr;
  }
  return read_input(r, &input) ? expr_input(r->arena, r->inputs[input], input) : NULL;
}

/* "t0 = mul($0, $0); " */
static bool read_letter(Reader *r) {
  const char *begin = r->text, *name;
  size_t length;
  uint32_t number;
  if (!scan_name(&r->text, &name, &length) || !numbered(name, length, "t", &number) || !scan_char(&r->text, '=')) {
    r->text = begin;
    return false;
  }
  Expr *expr = number == r->letters.n ? read_expr(r) : fail(r, "names must be t0, t1, t2 ... in this order");
  if (!expr) return false;
  vec_push(r->arena, &r->letters, expr);
  if (scan_char(&r->text, ';')) return true;
  fail(r, "expected ';'");
  return false;
}

Expr *expr_read(Arena *arena, SizeTable *sizes, const char **text, uint32_t n_inputs, const DType *inputs,
                const char **error) {
  Reader r = {.arena = arena, .sizes = sizes, .text = *text, .n_inputs = n_inputs, .inputs = inputs};
  while (read_letter(&r)) continue;
  Expr *expr = r.error ? NULL : read_expr(&r);
  *text = r.text;
  *error = r.error;
  return expr;
}

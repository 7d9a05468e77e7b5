/* Operators: each on numbers, on run-time sizes and on tensors.
 *
 * In: the text of an operator and its operands. Out: a number, a size (a polynomial), a condition for the run to
 * check, or a node. Refuses operands of the wrong kind, overflow of 64 bits, division by zero, and shapes that do not
 * agree.
 *
 * Integers are exact and never wrap; `/` always gives a double, as in Python, and `//` and `%` round towards minus
 * infinity. */
#include "elaborate/operators.h"

#include <math.h>
#include <string.h>

#include "base/checked_size.h"
#include "elaborate/adapters.h"
#include "elaborate/tensors.h"

// ---- arithmetic ----

/* What one operator does to each kind of operand. */
typedef struct Arithmetic {
  const char *text;
  OpKind op;
  unsigned dtypes; /* of tensors */
  bool divides;
  bool (*integers)(int64_t a, int64_t b, int64_t *result); /* false: overflow; NULL: the result is a double */
  double (*numbers)(double a, double b);
  const Size *(*sizes)(SizeTable *table, const Size *a, const Size *b); /* NULL: no size */
} Arithmetic;

/* The divisor is not 0. C truncates towards zero, so a remainder of the other sign lowers the quotient by one.
 * INT64_MIN / -1 is the one overflow; it would trap. */
static bool floor_divide(int64_t a, int64_t b, int64_t *result) {
  if (b == -1) return checked_sub(0, a, result);
  *result = a / b - (a % b != 0 && (a % b < 0) != (b < 0));
  return true;
}

/* The remainder has the sign of the divisor. INT64_MIN % -1 would trap in C, and its value is 0. */
static bool floor_modulo(int64_t a, int64_t b, int64_t *result) {
  *result = b == -1 ? 0 : a % b;
  if (*result != 0 && (*result < 0) != (b < 0)) *result += b;
  return true;
}

static double number_modulo(double a, double b) {
  double rest = fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/* By a number greater than 0 it is rounded down; by anything else it must come out even. */
static const Size *size_quotient(SizeTable *table, const Size *a, const Size *b) {
  int64_t divisor;
  return size_is_const(b, &divisor) && divisor > 0 ? size_floor_div(table, a, divisor) : size_div(table, a, b);
}

static const Size *size_modulo(SizeTable *table, const Size *a, const Size *b) {
  const Size *quotient = size_quotient(table, a, b), *product = quotient ? size_mul(table, quotient, b) : NULL;
  return product ? size_sub(table, a, product) : NULL;
}

static double add_numbers(double a, double b) { return a + b; }
static double subtract_numbers(double a, double b) { return a - b; }
static double multiply_numbers(double a, double b) { return a * b; }
static double divide_numbers(double a, double b) { return a / b; }
/* By way of the remainder, so that (a // b) * b + a % b gives a back up to rounding. */
static double floor_divide_numbers(double a, double b) { return (a - number_modulo(a, b)) / b; }

static bool add_integers(int64_t a, int64_t b, int64_t *result) { return checked_add(a, b, result); }
static bool subtract_integers(int64_t a, int64_t b, int64_t *result) { return checked_sub(a, b, result); }
static bool multiply_integers(int64_t a, int64_t b, int64_t *result) { return checked_mul(a, b, result); }

static const Arithmetic arithmetic_table[] = {
    {"+", OP_ADD, F32 | I32, false, add_integers, add_numbers, size_add},
    {"-", OP_SUB, F32 | I32, false, subtract_integers, subtract_numbers, size_sub},
    {"*", OP_MUL, F32 | I32, false, multiply_integers, multiply_numbers, size_mul},
    {"/", OP_DIV, F32, true, NULL, divide_numbers, NULL},
    {"//", OP_FLOORDIV, I32, true, floor_divide, floor_divide_numbers, size_quotient},
    {"%", OP_FLOORMOD, I32, true, floor_modulo, number_modulo, size_modulo},
};

/* NULL for no operator of the table; `@` has its own way. */
static const Arithmetic *arithmetic_named(const char *text) {
  for (size_t i = 0; i < sizeof arithmetic_table / sizeof *arithmetic_table; i++) {
    if (strcmp(arithmetic_table[i].text, text) == 0) return &arithmetic_table[i];
  }
  return NULL;
}

/* The text of an operand of a division, in brackets if it is a sum or a product: a + b // 2 is something else. */
static const char *divided(Elaborator *e, Value v) {
  const Size *size = size_of(e->sizes, v);
  bool is_alone = size_is_const(size, NULL) || size_symbol_of(size) >= 0;
  StrBuf text = strbuf_new(e->arena);
  if (!is_alone) strbuf_add_char(&text, '(');
  size_print(&text, e->sizes, size);
  if (!is_alone) strbuf_add_char(&text, ')');
  return text.text;
}

/* A run-time size with an integer or another size. The result must be a size whatever the run-time sizes will be:
 * doubles are refused, and quotients by a size (or by a number below 0) that do not come out even. */
static Value on_sizes(Elaborator *e, const Arithmetic *row, Value a, Value b) {
  if (!is_size(a) || !is_size(b) || !row->sizes) {
    return fail(e, DIAG_KIND, "'%s' of %K and %K: a size must be a sum or product of integers and run-time sizes%s",
                row->text, a, b, row->sizes ? "" : "; '//' divides one and rounds down");
  }
  bool is_number = b.kind == VALUE_INTEGER;
  if (row->divides && is_number && b.as.integer == 0) return fail(e, DIAG_RANGE, "division of %V by zero", a);
  const Size *result = row->sizes(e->sizes, size_of(e->sizes, a), size_of(e->sizes, b));
  if (result) return value_size(result);
  if (!row->divides)
    return fail(e, DIAG_LIMIT, "'%s' of two sizes gives one that is too large to be computed", row->text);
  const char *left = divided(e, a), *right = divided(e, b);
  if (is_number && b.as.integer > 0)
    return fail(e, DIAG_LIMIT,
                "%s %s %s is too large to be computed, or one quotient more than the %d that a model "
                "can have",
                left, row->text, right, (int)SIZE_MAX_FLOORS);
  return fail(e, DIAG_KIND,
              "%s %s %s is not a size: a division by anything but a number greater than 0 must come out "
              "even whatever the run-time sizes are",
              left, row->text, right);
}

/* Two integers stay an integer, except under `/`; otherwise both become doubles. */
static Value on_numbers(Elaborator *e, const Arithmetic *row, Value a, Value b) {
  if (row->divides && number_of(b) == 0) return fail(e, DIAG_RANGE, "division of %V by zero", a);
  if (a.kind == VALUE_NUMBER || b.kind == VALUE_NUMBER || !row->integers) {
    return value_number(row->numbers(number_of(a), number_of(b)));
  }
  int64_t result;
  if (row->integers(a.as.integer, b.as.integer, &result)) return value_integer(result);
  return fail(e, DIAG_RANGE, "%V %s %V does not fit in 64 bits", a, row->text, b);
}

/* A number or a run-time size. */
static bool is_numeric(Value v) { return is_number(v) || v.kind == VALUE_SIZE; }

static const char *quoted(Elaborator *e, const char *op) { return arena_printf(e->arena, "'%s'", op); }

/* A tensor on either side makes the other operand a tensor too; see operands_of. */
Value operator_binary(Elaborator *e, const char *op, Value a, Value b) {
  if (is_poison(a) || is_poison(b)) return POISON;
  if (strcmp(op, "@") == 0) {
    Node *x = tensor_of(e, a, F32, "the left operand of '@'", "");
    Node *y = x ? tensor_of(e, b, F32, "the right operand of '@'", "") : NULL;
    return y ? value_tensor(matrix_product(e, x, y)) : POISON;
  }
  if (strcmp(op, "**") == 0) return operator_power(e, a, b);
  const Arithmetic *row = arithmetic_named(op);
  if (is_tensor(a) || is_tensor(b)) {
    Node *xs[2];
    const char *what = quoted(e, op);
    return operands_of(e, what, 2, (Value[]){a, b}, row->dtypes, xs) ? elementwise(e, what, row->op, 2, xs) : POISON;
  }
  if (!is_numeric(a) || !is_numeric(b)) return fail(e, DIAG_KIND, "'%s' of %K and %K is not defined", op, a, b);
  bool has_size = a.kind == VALUE_SIZE || b.kind == VALUE_SIZE;
  return has_size ? on_sizes(e, row, a, b) : on_numbers(e, row, a, b);
}

/* The negation of a size is 0 - size: sizes have no sign of their own. */
Value operator_negate(Elaborator *e, Value v) {
  if (is_poison(v)) return POISON;
  if (is_tensor(v)) {
    Node *x;
    return operands_of(e, "'-'", 1, &v, F32 | I32, &x) ? elementwise(e, "'-'", OP_NEG, 1, &x) : POISON;
  }
  if (v.kind == VALUE_NUMBER) return value_number(-v.as.number);
  if (is_size(v)) return operator_binary(e, "-", value_integer(0), v);
  return fail(e, DIAG_KIND, "what '-' negates must be a number, not %K", v);
}

/* The inner sizes must agree, and the leading axes broadcast. Neither of the last two axes may be the batch of a
 * ragged model, because a product over it mixes items. */
Node *matrix_product(Elaborator *e, Node *a, Node *b) {
  if (a->rank < 2 || b->rank < 2) {
    fail(e, DIAG_SHAPE, "'@' of shapes %T and %T: both need two axes or more", a, b);
    return NULL;
  }
  if (!within_items(e, "'@'", 2, a->dims + a->rank - 2) || !within_items(e, "'@'", 2, b->dims + b->rank - 2))
    return NULL;
  if (!need_same(e, a->dims[a->rank - 1], b->dims[b->rank - 2], "'@': the inner sizes do not agree: %T and %T", a, b)) {
    return NULL;
  }
  Shape result;
  if (!broadcast_shapes(e, "'@'", 2, (Shape[]){leading(a, 2), leading(b, 2)}, (Node *[]){a, b}, &result)) return NULL;
  return with_known_dims(e, product_with_adapter(e, a, b, true), result.rank, result.dims);
}

// ---- comparison ----

static const struct Comparison {
  const char *text;
  OpKind op;
} comparisons[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT}, {">", OP_GT}, {"<=", OP_LE}, {">=", OP_GE}};

/* The grammar gives no other text, so the loop ends. */
static OpKind comparison_named(const char *text) {
  size_t i = 0;
  while (strcmp(comparisons[i].text, text) != 0) i++;
  return comparisons[i].op;
}

/* Two integers are compared exactly, by the sign of their order: as doubles, 2^53 and 2^53 + 1 would be equal. */
static bool compare_numbers(OpKind op, Value a, Value b) {
  bool exact = a.kind == VALUE_INTEGER && b.kind == VALUE_INTEGER;
  double x = exact ? (double)((a.as.integer > b.as.integer) - (a.as.integer < b.as.integer)) : number_of(a);
  double y = exact ? 0 : number_of(b);
  switch (op) {
    case OP_LT: return x < y;
    case OP_GT: return x > y;
    case OP_LE: return x <= y;
    case OP_GE: return x >= y;
    default: return values_equal(a, b) == (op == OP_EQ);
  }
}

static bool is_open(Value v) {
  return is_tensor(v) || v.kind == VALUE_SIZE || v.kind == VALUE_CONDITION;
}

/* `x in list`: whether an element equals x. What only a run decides is refused on both sides. */
static Value is_element(Elaborator *e, Value x, Value list) {
  if (list.kind != VALUE_LIST) return fail(e, DIAG_KIND, "what stands behind 'in' must be a list, not %K", list);
  if (is_open(x)) return fail(e, DIAG_KIND, "'in' of %K and %K is not defined", x, list);
  bool is_found = false;
  for (uint32_t i = 0; i < list.as.list->n; i++) {
    Value element = list.as.list->items[i];
    if (is_poison(element)) return POISON;
    if (is_open(element)) return fail(e, DIAG_KIND, "'in' of %K and a list with %K is not defined", x, element);
    is_found = is_found || values_equal(x, element);
  }
  return value_bool(is_found);
}

static Value compare_tensors(Elaborator *e, const char *text, OpKind op, Value a, Value b) {
  Node *xs[2];
  const char *what = quoted(e, text);
  return operands_of(e, what, 2, (Value[]){a, b}, F32 | I32, xs) ? elementwise(e, what, op, 2, xs) : POISON;
}

/* Decided now if the difference is constant, otherwise a condition for the run. */
static Value compare_sizes(Elaborator *e, OpKind op, Value a, Value b) {
  Value result = value_compare(e->arena, e->sizes, op, size_of(e->sizes, a), size_of(e->sizes, b));
  return is_poison(result) ? fail(e, DIAG_LIMIT, "the difference of %V and %V is too large to be computed", a, b)
                           : result;
}

/* `mask != none` asks whether an argument was given, so `none` is compared as a value even with a tensor. What a run
 * decides has no truth here, hence neither has its comparison with something else. */
Value operator_compare(Elaborator *e, const char *text, Value a, Value b) {
  if (is_poison(a) || is_poison(b)) return POISON;
  if (strcmp(text, "in") == 0) return is_element(e, a, b);
  OpKind op = comparison_named(text);
  bool is_equality = op == OP_EQ || op == OP_NE;
  bool has_none = a.kind == VALUE_NONE || b.kind == VALUE_NONE;
  if ((is_tensor(a) || is_tensor(b)) && !has_none) return compare_tensors(e, text, op, a, b);
  if (is_number(a) && is_number(b)) return value_bool(compare_numbers(op, a, b));
  if (is_size(a) && is_size(b)) return compare_sizes(e, op, a, b);
  /* What a run decides has no truth here, so neither has its comparison with something else. */
  bool decides_later = a.kind == VALUE_CONDITION || b.kind == VALUE_CONDITION || (is_numeric(a) && is_numeric(b));
  if (!is_equality || decides_later) return fail(e, DIAG_KIND, "'%s' of %K and %K is not defined", text, a, b);
  return value_bool(values_equal(a, b) == (op == OP_EQ));
}

// ---- logic ----

/* Nothing but booleans counts as true or false: `if n` with a number is a mistake more often than not. */
Value truth_of(Elaborator *e, Value v, const char *what) {
  if (v.kind == VALUE_BOOL || v.kind == VALUE_CONDITION || is_poison(v)) return v;
  return fail(e, DIAG_KIND, "%s must be true or false, not %K", what, v);
}

Value operator_not(Elaborator *e, Value v) {
  if (is_tensor(v)) {
    Node *x = tensor_of(e, v, BOOL, "what 'not' negates", "");
    return x ? elementwise(e, "'not'", OP_NOT, 1, &x) : POISON;
  }
  v = truth_of(e, v, "what 'not' negates");
  if (v.kind == VALUE_BOOL) return value_bool(!v.as.boolean);
  return is_poison(v) ? v : value_condition(e->arena, COND_NOT, v.as.condition, NULL);
}

/* The left side did not decide. A boolean on either side decides now or drops out; two conditions become one that the
 * run decides. */
Value operator_logic(Elaborator *e, bool is_or, Value a, Value b) {
  if (is_poison(a) || is_poison(b)) return POISON;
  if (is_tensor(a) || is_tensor(b)) {
    Node *xs[2];
    xs[0] = tensor_of(e, a, BOOL, is_or ? "the left side of 'or'" : "the left side of 'and'", "");
    xs[1] = xs[0] ? tensor_of(e, b, BOOL, is_or ? "the right side of 'or'" : "the right side of 'and'", "") : NULL;
    return xs[1] ? elementwise(e, is_or ? "'or'" : "'and'", is_or ? OP_OR : OP_AND, 2, xs) : POISON;
  }
  b = truth_of(e, b, "a condition");
  if (is_poison(b) || a.kind == VALUE_BOOL) return b;
  if (b.kind == VALUE_BOOL) return b.as.boolean == is_or ? b : a;
  return value_condition(e->arena, is_or ? COND_OR : COND_AND, a.as.condition, b.as.condition);
}

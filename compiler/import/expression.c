/* Evaluates expressions over values of JSON. See expression.h.
 *
 * Numbers follow the language: whole ones stay whole, `/` gives a fraction, `//` and `%` round down. Whatever is
 * computed goes into facts->values, so that nobody has to count references. */
#include "import/expression.h"

#include <math.h>
#include <string.h>

#include "base/checked_size.h"
#include "import/value_text.h"

// ---- names ----

static json_t *name_value(Facts *f, const Ast *node) {
  json_t *value = json_object_get(f->names, node->name);
  return value ? value : json_null();
}

static json_t *dot_value(Facts *f, const Ast *node) {
  json_t *object = expression_value(f, node->children[0]);
  if (!object) return NULL;
  if (json_is_null(object)) return object;
  if (!json_is_object(object))
    return facts_fault(f, node, "%s: %s is %s, where an object is expected", f->file,
                 expression_keys(f->arena, node->children[0]), value_kind(object));
  json_t *value = json_object_get(object, node->name);
  return value ? value : json_null();
}

static json_t *index_value(Facts *f, const Ast *node) {
  json_t *list = expression_value(f, node->children[0]);
  json_t *index = list && node->n_children == 2 ? expression_value(f, node->children[1]) : NULL;
  if (!list || !index) return NULL;
  if (json_is_null(list)) return list;
  if (!json_is_array(list) || !json_is_integer(index))
    return facts_fault(f, node, "%s: %s is %s, where a list is expected", f->file,
                 expression_keys(f->arena, node->children[0]), value_kind(list));
  json_int_t i = json_integer_value(index);
  json_t *value = i < 0 ? NULL : json_array_get(list, (size_t)i);
  return value ? value : json_null();
}

// ---- operators ----

/* NULL after a fault: an operand is no number. */
static json_t *number_of(Facts *f, const Ast *node) {
  json_t *value = expression_value(f, node);
  if (!value || json_is_number(value)) return value;
  const char *keys = expression_keys(f->arena, node);
  if (json_is_null(value)) return facts_fault(f, node, "%s: %s is missing; a number is needed here", f->file, keys);
  return facts_fault(f, node, "%s: %s is %s, where a number is needed", f->file, keys, value_kind(value));
}

static json_t *whole(Facts *f, const Ast *node, int64_t a, int64_t b) {
  int64_t result = 0;
  bool fits = true;
  switch (*node->name) {
    case '+':
      fits = !__builtin_add_overflow(a, b, &result);
      break;
    case '-':
      fits = !__builtin_sub_overflow(a, b, &result);
      break;
    case '*':
      fits = !__builtin_mul_overflow(a, b, &result);
      break;
    default: /* `//` and `%`; the divisor is positive */
      result = *node->name == '/' ? a / b - (a % b < 0) : a % b < 0 ? a % b + b : a % b;
  }
  return fits ? facts_keep(f, json_integer(result)) : facts_fault(f, node, "the number does not fit in 64 bits");
}

static json_t *binary_value(Facts *f, const Ast *node) {
  json_t *left = number_of(f, node->children[0]), *right = left ? number_of(f, node->children[1]) : NULL;
  if (!right) return NULL;
  bool divides = strcmp(node->name, "//") == 0 || strcmp(node->name, "%") == 0;
  bool is_fraction = strcmp(node->name, "/") == 0 || strcmp(node->name, "**") == 0;
  if (divides && (!json_is_integer(left) || !json_is_integer(right) || json_integer_value(right) <= 0))
    return facts_fault(f, node, "%s: '%s' wants whole numbers and a divisor above 0", f->file, node->name);
  if (strcmp(node->name, "@") == 0) return facts_fault(f, node, "'@' is for tensors");
  if (!is_fraction && json_is_integer(left) && json_is_integer(right))
    return whole(f, node, json_integer_value(left), json_integer_value(right));
  double a = json_number_value(left), b = json_number_value(right);
  double result = strcmp(node->name, "**") == 0 ? pow(a, b)
                  : *node->name == '+'          ? a + b
                  : *node->name == '-'          ? a - b
                  : *node->name == '*'          ? a * b
                                                : a / b;
  return isfinite(result) ? facts_keep(f, json_real(result))
                          : facts_fault(f, node, "%s: the result is not finite", f->file);
}

/* 16.0 is no size, so that a key that has it is not equal to a computed 16; to a number in the text it is. */
static bool are_equal_operands(const Ast *node, const json_t *left, const json_t *right) {
  const bool has_constant = node->children[0]->kind == AST_NUMBER || node->children[1]->kind == AST_NUMBER;
  const bool are_numbers = json_is_number(left) && json_is_number(right);
  if (are_numbers && !has_constant && json_is_integer(left) != json_is_integer(right)) return false;
  return values_are_equal(left, right);
}

/* `x in list`, by == with each element. */
static json_t *element_value(Facts *f, const Ast *node) {
  const json_t *x = expression_value(f, node->children[0]), *list = x ? expression_value(f, node->children[1]) : NULL;
  if (!list) return NULL;
  if (!json_is_array(list))
    return facts_fault(f, node, "%s: what stands behind 'in' is %s, where a list is expected", f->file,
                       value_kind(list));
  bool is_found = false;
  for (size_t i = 0; i < json_array_size(list); i++)
    is_found = is_found || values_are_equal(x, json_array_get(list, i));
  return json_boolean(is_found);
}

static json_t *compare_value(Facts *f, const Ast *node) {
  if (ast_is_in(node)) return element_value(f, node);
  bool is_equality = strcmp(node->name, "==") == 0 || strcmp(node->name, "!=") == 0;
  json_t *left = is_equality ? expression_value(f, node->children[0]) : number_of(f, node->children[0]);
  json_t *right = !left ? NULL : is_equality ? expression_value(f, node->children[1]) : number_of(f, node->children[1]);
  if (!right) return NULL;
  if (is_equality) return json_boolean(are_equal_operands(node, left, right) == (*node->name == '='));
  double a = json_number_value(left), b = json_number_value(right);
  bool or_equal = node->name[1] == '=' && a == b;
  return json_boolean(or_equal || (*node->name == '<' ? a < b : a > b));
}

static json_t *truth_value(Facts *f, const Ast *node) {
  json_t *value = expression_value(f, node);
  if (!value || json_is_boolean(value)) return value;
  if (json_is_null(value)) return json_false(); /* a flag that the file does not have is not set */
  return facts_fault(f, node, "%s: %s is %s, where true or false is needed", f->file, expression_keys(f->arena, node),
               value_kind(value));
}

static json_t *logic_value(Facts *f, const Ast *node) {
  json_t *left = truth_value(f, node->children[0]);
  return !left || json_is_true(left) == (node->kind == AST_OR) ? left : truth_value(f, node->children[1]);
}

static json_t *negated(Facts *f, const Ast *node) {
  json_t *value = number_of(f, node->children[0]);
  if (!value) return NULL;
  int64_t result;
  if (json_is_integer(value))
    return __builtin_sub_overflow((int64_t)0, json_integer_value(value), &result)
               ? facts_fault(f, node, "the number does not fit in 64 bits")
               : facts_keep(f, json_integer(result));
  return facts_keep(f, json_real(-json_real_value(value)));
}

// ---- calls ----

/* absent(key): the file has no such key, not even null. A class may do another thing without a key than with null. */
static json_t *absent_value(Facts *f, const Ast *call) {
  const Ast *key = call->n_children == 2 ? call_argument(call, 0) : NULL;
  if (!key || (key->kind != AST_NAME && key->kind != AST_DOT))
    return facts_fault(f, call, "absent takes the name of a key");
  const json_t *object = key->kind == AST_DOT ? expression_value(f, key->children[0]) : f->names;
  return object ? json_boolean(!json_object_get(object, key->name)) : NULL;
}

static json_t *first_value(Facts *f, const Ast *call) {
  for (uint32_t i = 0; i + 1 < call->n_children; i++) {
    json_t *value = expression_value(f, call_argument(call, i));
    if (!value || !json_is_null(value)) return value;
  }
  return json_null();
}

static json_t *call_value(Facts *f, const Ast *call) {
  const char *name = call->children[0]->kind == AST_NAME ? call->children[0]->name : "";
  if (strcmp(name, "first") == 0) return first_value(f, call);
  if (strcmp(name, "absent") == 0) return absent_value(f, call);
  const uint32_t n = call->n_children - 1;
  json_t **given = ARENA_ARRAY(f->arena, json_t *, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    given[i] = expression_value(f, call_argument(call, i));
    if (!given[i]) return NULL;
  }
  return checkpoint_call(f, call, given, n);
}

// ---- all kinds ----

static json_t *list_value(Facts *f, const Ast *node) {
  json_t *list = facts_keep(f, json_array());
  for (uint32_t i = 0; i < node->n_children; i++) {
    json_t *item = expression_value(f, node->children[i]);
    if (!item) return NULL;
    json_array_append(list, item);
  }
  return list;
}

static json_t *choice_value(Facts *f, const Ast *node) {
  json_t *condition = truth_value(f, node->children[0]);
  return condition ? expression_value(f, node->children[json_is_true(condition) ? 1 : 2]) : NULL;
}

static json_t *constant_value(Facts *f, const Ast *node) {
  switch (node->kind) {
    case AST_NUMBER:
      return facts_keep(f, node->is_integer ? json_integer(node->integer) : json_real(node->number));
    case AST_STRING:
      return facts_keep(f, json_string(node->text));
    case AST_NONE:
      return json_null();
    case AST_TRUE:
      return json_true();
    case AST_FALSE:
      return json_false();
    default:
      return facts_fault(f, node, "a checkpoint block has no %s", ast_kind_text(node->kind));
  }
}

json_t *expression_value(Facts *f, const Ast *node) {
  json_t *condition;
  switch (node->kind) {
    case AST_NAME:
      return name_value(f, node);
    case AST_DOT:
      return dot_value(f, node);
    case AST_INDEX:
      return index_value(f, node);
    case AST_CALL:
      return call_value(f, node);
    case AST_LIST:
      return list_value(f, node);
    case AST_CHOICE:
      return choice_value(f, node);
    case AST_COMPARE:
      return compare_value(f, node);
    case AST_BINARY:
      return binary_value(f, node);
    case AST_NEGATE:
      return negated(f, node);
    case AST_AND:
    case AST_OR:
      return logic_value(f, node);
    case AST_NOT:
      condition = truth_value(f, node->children[0]);
      return condition ? json_boolean(!json_is_true(condition)) : NULL;
    default:
      return constant_value(f, node);
  }
}

int expression_truth(Facts *facts, const Ast *node) {
  json_t *value = truth_value(facts, node);
  return value ? json_is_true(value) : -1;
}

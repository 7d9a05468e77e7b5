/* Evaluates expressions over values of JSON. See expression.h.
 *
 * Numbers follow the language: whole ones stay whole, `/` gives a fraction, `//` and `%` round down. Whatever is
 * computed goes into facts->values, so that nobody has to count references. */
#include "import/expression.h"

#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "base/checked_size.h"
#include "import/layer_values.h"
#include "import/value_text.h"

static json_t *evaluate(Facts *f, const Ast *node);

static json_t *keep(Facts *f, json_t *value) {
  json_array_append_new(f->values, value);
  return value;
}

/* Adds an error at a node and returns NULL. */
static json_t *fault(Facts *f, const Ast *node, const char *format, ...) __attribute__((format(printf, 3, 4)));
static json_t *fault(Facts *f, const Ast *node, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(f->arena, format, args);
  va_end(args);
  diag_error(f->diag, node->span, DIAG_CHECKPOINT, "%s", text);
  return NULL;
}

// ---- keys ----

/* The path of a chain of names, "a.b"; NULL if the node is none. */
static const char *path_of(Arena *arena, const Ast *node) {
  if (node->kind == AST_NAME) return node->name;
  if (node->kind != AST_DOT) return NULL;
  const char *before = path_of(arena, node->children[0]);
  return before ? arena_printf(arena, "%s.%s", before, node->name) : NULL;
}

static void add_keys(Arena *arena, StrBuf *out, const Ast *node) {
  const char *path = path_of(arena, node);
  if (path) {
    const char *quoted = arena_printf(arena, "\"%s\"", path);
    if (!strstr(out->text, quoted)) strbuf_printf(out, "%s%s", out->length ? ", " : "", quoted);
    return;
  }
  for (uint32_t i = node->kind == AST_CALL; i < node->n_children; i++)
    if (node->children[i]) add_keys(arena, out, node->children[i]);
}

const char *expression_keys(Arena *arena, const Ast *node) {
  StrBuf out = strbuf_new(arena);
  add_keys(arena, &out, node);
  return out.text;
}

static const Ast *argument(const Ast *call, uint32_t i) { return call->children[i + 1]->children[0]; }

/* The object whose members of_layers accounts for; NULL. */
static const char *object_of_layers(Arena *arena, const Ast *node) {
  const Ast *callee = node->kind == AST_CALL ? node->children[0] : NULL;
  const bool is_call = callee && callee->kind == AST_NAME && strcmp(callee->name, "of_layers") == 0;
  return is_call && node->n_children > 1 ? path_of(arena, argument(node, 0)) : NULL;
}

void expression_add_keys(Map *keys, const Ast *node) {
  const char *layers = object_of_layers(keys->arena, node);
  if (layers) map_put(keys, arena_printf(keys->arena, "%s.*", layers), NULL);
  const char *path = path_of(keys->arena, node);
  if (path) map_put(keys, path, NULL);
  for (uint32_t i = node->kind == AST_CALL; i < node->n_children; i++)
    if (node->children[i]) expression_add_keys(keys, node->children[i]);
}

bool expression_needs_weights(const Ast *node) {
  static const char *const of_weights[] = {"has", "dims", "same", "fits"};
  const Ast *callee = node->kind == AST_CALL ? node->children[0] : NULL;
  for (size_t i = 0; callee && callee->kind == AST_NAME && i < sizeof of_weights / sizeof *of_weights; i++)
    if (strcmp(callee->name, of_weights[i]) == 0) return true;
  for (uint32_t i = 0; i < node->n_children; i++)
    if (node->children[i] && expression_needs_weights(node->children[i])) return true;
  return false;
}

// ---- names ----

static json_t *name_value(Facts *f, const Ast *node) {
  json_t *value = json_object_get(f->names, node->name);
  return value ? value : json_null();
}

static json_t *dot_value(Facts *f, const Ast *node) {
  json_t *object = evaluate(f, node->children[0]);
  if (!object) return NULL;
  if (json_is_null(object)) return object;
  if (!json_is_object(object))
    return fault(f, node, "%s: %s is %s, where an object is expected", f->file,
                 expression_keys(f->arena, node->children[0]), value_kind(object));
  json_t *value = json_object_get(object, node->name);
  return value ? value : json_null();
}

static json_t *index_value(Facts *f, const Ast *node) {
  json_t *list = evaluate(f, node->children[0]);
  json_t *index = list && node->n_children == 2 ? evaluate(f, node->children[1]) : NULL;
  if (!list || !index) return NULL;
  if (json_is_null(list)) return list;
  if (!json_is_array(list) || !json_is_integer(index))
    return fault(f, node, "%s: %s is %s, where a list is expected", f->file,
                 expression_keys(f->arena, node->children[0]), value_kind(list));
  json_int_t i = json_integer_value(index);
  json_t *value = i < 0 ? NULL : json_array_get(list, (size_t)i);
  return value ? value : json_null();
}

// ---- operators ----

bool values_are_equal(const json_t *a, const json_t *b) {
  if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
  return json_equal(a, b);
}

/* NULL after a fault: an operand is no number. */
static json_t *number_of(Facts *f, const Ast *node) {
  json_t *value = evaluate(f, node);
  if (!value || json_is_number(value)) return value;
  const char *keys = expression_keys(f->arena, node);
  if (json_is_null(value)) return fault(f, node, "%s: %s is missing; a number is needed here", f->file, keys);
  return fault(f, node, "%s: %s is %s, where a number is needed", f->file, keys, value_kind(value));
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
  return fits ? keep(f, json_integer(result)) : fault(f, node, "the number does not fit in 64 bits");
}

static json_t *binary_value(Facts *f, const Ast *node) {
  json_t *left = number_of(f, node->children[0]), *right = left ? number_of(f, node->children[1]) : NULL;
  if (!right) return NULL;
  bool divides = strcmp(node->name, "//") == 0 || strcmp(node->name, "%") == 0;
  bool is_fraction = strcmp(node->name, "/") == 0 || strcmp(node->name, "**") == 0;
  if (divides && (!json_is_integer(left) || !json_is_integer(right) || json_integer_value(right) <= 0))
    return fault(f, node, "%s: '%s' wants whole numbers and a divisor above 0", f->file, node->name);
  if (strcmp(node->name, "@") == 0) return fault(f, node, "'@' is for tensors");
  if (!is_fraction && json_is_integer(left) && json_is_integer(right))
    return whole(f, node, json_integer_value(left), json_integer_value(right));
  double a = json_number_value(left), b = json_number_value(right);
  double result = strcmp(node->name, "**") == 0 ? pow(a, b)
                  : *node->name == '+'          ? a + b
                  : *node->name == '-'          ? a - b
                  : *node->name == '*'          ? a * b
                                                : a / b;
  return isfinite(result) ? keep(f, json_real(result)) : fault(f, node, "%s: the result is not finite", f->file);
}

static json_t *compare_value(Facts *f, const Ast *node) {
  bool is_equality = strcmp(node->name, "==") == 0 || strcmp(node->name, "!=") == 0;
  json_t *left = is_equality ? evaluate(f, node->children[0]) : number_of(f, node->children[0]);
  json_t *right = !left ? NULL : is_equality ? evaluate(f, node->children[1]) : number_of(f, node->children[1]);
  if (!right) return NULL;
  if (is_equality) return json_boolean(values_are_equal(left, right) == (*node->name == '='));
  double a = json_number_value(left), b = json_number_value(right);
  bool or_equal = node->name[1] == '=' && a == b;
  return json_boolean(or_equal || (*node->name == '<' ? a < b : a > b));
}

static json_t *truth_value(Facts *f, const Ast *node) {
  json_t *value = evaluate(f, node);
  if (!value || json_is_boolean(value)) return value;
  if (json_is_null(value)) return json_false(); /* a flag that the file does not have is not set */
  return fault(f, node, "%s: %s is %s, where true or false is needed", f->file, expression_keys(f->arena, node),
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
               ? fault(f, node, "the number does not fit in 64 bits")
               : keep(f, json_integer(result));
  return keep(f, json_real(-json_real_value(value)));
}

// ---- functions ----

/* has("w"), and the dims of dims("w", i); the name is a text. */
static json_t *weight_value(Facts *f, const Ast *call, bool wants_dims) {
  json_t *name = call->n_children > 1 ? evaluate(f, argument(call, 0)) : NULL;
  if (!name || !json_is_string(name) || call->n_children != (wants_dims ? 3 : 2))
    return fault(f, call, "%s", wants_dims ? "dims takes the name of a weight and an axis" : "has takes a name");
  const WeightEntry *entry = f->weights ? weight_set_find(f->weights, json_string_value(name)) : NULL;
  if (!wants_dims) return json_boolean(entry != NULL);
  json_t *axis = evaluate(f, argument(call, 1));
  json_int_t i = axis && json_is_integer(axis) ? json_integer_value(axis) : -1;
  if (!entry || i < 0 || i >= entry->tensor->rank) return json_null();
  return keep(f, json_integer(entry->tensor->dims[i]));
}

/* Whether both hold the same numbers, as f32. False after an error, which is reported. */
static bool same_numbers(Facts *f, const WeightEntry *a, const WeightEntry *b) {
  enum { AT_ONCE = 1 << 14 };
  int64_t n = 1;
  if (a->tensor->rank != b->tensor->rank) return false;
  for (uint32_t i = 0; i < a->tensor->rank; i++) {
    if (a->tensor->dims[i] != b->tensor->dims[i]) return false;
    n *= a->tensor->dims[i];
  }
  if (!weight_entry_is_readable(a) || !weight_entry_is_readable(b)) return false;
  float *left = ARENA_ARRAY(f->arena, float, AT_ONCE), *right = ARENA_ARRAY(f->arena, float, AT_ONCE);
  for (int64_t first = 0; first < n; first += AT_ONCE) {
    const int64_t part = n - first < AT_ONCE ? n - first : AT_ONCE;
    if (!weight_entry_read_part(a, f->diag, first, part, left)) return false;
    if (!weight_entry_read_part(b, f->diag, first, part, right)) return false;
    if (memcmp(left, right, (size_t)part * sizeof *left) != 0) return false;
  }
  return true;
}

/* same("a", "b"): the file has no a, or it holds the numbers of b. */
static json_t *same_value(Facts *f, const Ast *call) {
  if (call->n_children != 3) return fault(f, call, "same takes the names of two weights");
  json_t *a = evaluate(f, argument(call, 0)), *b = a ? evaluate(f, argument(call, 1)) : NULL;
  if (!a || !b) return NULL;
  if (!json_is_string(a) || !json_is_string(b)) return fault(f, call, "same takes the names of two weights");
  const WeightEntry *left = f->weights ? weight_set_find(f->weights, json_string_value(a)) : NULL;
  const WeightEntry *right = f->weights ? weight_set_find(f->weights, json_string_value(b)) : NULL;
  if (!left) return json_true();
  if (!right || !same_numbers(f, left, right)) return json_false();
  if (f->copies) map_put(f->copies, arena_strdup(f->arena, json_string_value(a)), NULL);
  return json_true();
}

static const char *shape_text(Arena *arena, const int64_t *dims, uint32_t rank) {
  StrBuf out = strbuf_new(arena);
  for (uint32_t i = 0; i < rank; i++)
    strbuf_printf(&out, dims[i] < 0 ? "%s?" : "%s%lld", i ? ", " : "", (long long)dims[i]);
  return arena_printf(arena, "[%s]", out.text);
}

/* fits("*pooler.weight", a, b): each tensor whose name matches, if there is one, has the shape [a, b]. A size that is
 * missing (-1 here) is any. */
static json_t *fits_value(Facts *f, const Ast *call) {
  const json_t *pattern = call->n_children > 1 ? evaluate(f, argument(call, 0)) : NULL;
  if (!pattern || !json_is_string(pattern)) return fault(f, call, "fits takes the name of a weight and its sizes");
  const uint32_t rank = call->n_children - 2;
  int64_t *wanted = ARENA_ARRAY(f->arena, int64_t, rank);
  for (uint32_t i = 0; i < rank; i++) {
    const json_t *size = evaluate(f, argument(call, i + 1));
    if (!size) return NULL;
    if (!json_is_null(size) && !json_is_integer(size)) return fault(f, call, "fits takes whole numbers as sizes");
    wanted[i] = json_is_null(size) ? -1 : json_integer_value(size);
  }
  for (size_t k = 0; f->weights && k < f->weights->entries.n; k++) {
    const FileTensor *tensor = f->weights->entries.items[k].tensor;
    if (fnmatch(json_string_value(pattern), tensor->name, FNM_NOESCAPE) != 0) continue;
    bool is_fit = tensor->rank == rank;
    for (uint32_t i = 0; is_fit && i < rank; i++) is_fit = wanted[i] < 0 || tensor->dims[i] == wanted[i];
    if (is_fit) continue;
    f->misfit = arena_printf(f->arena, "\"%s\" is %s, and %s is wanted", tensor->name,
                             shape_text(f->arena, tensor->dims, tensor->rank), shape_text(f->arena, wanted, rank));
    return json_false();
  }
  return json_true();
}

/* absent(key): the file has no such key, not even null. A class may do another thing without a key than with null. */
static json_t *absent_value(Facts *f, const Ast *call) {
  const Ast *key = call->n_children == 2 ? argument(call, 0) : NULL;
  if (!key || (key->kind != AST_NAME && key->kind != AST_DOT)) return fault(f, call, "absent takes the name of a key");
  const json_t *object = key->kind == AST_DOT ? evaluate(f, key->children[0]) : f->names;
  return object ? json_boolean(!json_object_get(object, key->name)) : NULL;
}

static json_t *first_value(Facts *f, const Ast *call) {
  for (uint32_t i = 0; i + 1 < call->n_children; i++) {
    json_t *value = evaluate(f, argument(call, i));
    if (!value || !json_is_null(value)) return value;
  }
  return json_null();
}

static json_t *one_of_value(Facts *f, const Ast *call) {
  json_t *value = call->n_children > 1 ? evaluate(f, argument(call, 0)) : NULL;
  if (!value) return NULL;
  for (uint32_t i = 1; i + 1 < call->n_children; i++) {
    json_t *other = evaluate(f, argument(call, i));
    if (!other) return NULL;
    if (values_are_equal(value, other)) return json_true();
  }
  return json_false();
}

/* Whether every element of a list is one of what follows; a missing list has none. */
static json_t *all_of_value(Facts *f, const Ast *call) {
  json_t *list = call->n_children > 1 ? evaluate(f, argument(call, 0)) : NULL, *item;
  if (!list || json_is_null(list)) return list ? json_true() : NULL;
  if (!json_is_array(list))
    return fault(f, call, "%s: %s is %s, where a list is expected", f->file,
                 expression_keys(f->arena, argument(call, 0)), value_kind(list));
  size_t i, known = 0;
  json_array_foreach(list, i, item) {
    for (uint32_t k = 1; k + 1 < call->n_children; k++) {
      json_t *other = evaluate(f, argument(call, k));
      if (!other) return NULL;
      if (!values_are_equal(item, other)) continue;
      known++;
      break;
    }
  }
  return json_boolean(known == json_array_size(list));
}

/* letters(text): a list of its characters; of a missing text null. */
static json_t *letters_value(Facts *f, const Ast *call) {
  json_t *text = call->n_children == 2 ? evaluate(f, argument(call, 0)) : NULL;
  if (!text || json_is_null(text)) return text;
  if (!json_is_string(text))
    return fault(f, call, "%s: %s is %s, where a string is expected", f->file,
                 expression_keys(f->arena, argument(call, 0)), value_kind(text));
  json_t *list = keep(f, json_array());
  const char *at = json_string_value(text);
  while (*at) {
    size_t length = 1;
    while ((at[length] & 0xC0) == 0x80) length++; /* the rest of a character of UTF-8 */
    json_array_append_new(list, json_stringn(at, length));
    at += length;
  }
  return list;
}

/* of_layers(object, kinds, "kind", "key", "other key" ...): what all layers of a kind have for a key; null if none has
 * it. */
static json_t *of_layers_value(Facts *f, const Ast *call) {
  if (call->n_children < 5) return fault(f, call, "of_layers takes an object, a list of kinds, a kind and keys");
  json_t *layers = evaluate(f, argument(call, 0)), *kinds = evaluate(f, argument(call, 1));
  json_t *words = keep(f, json_array());
  for (uint32_t i = 2; i + 1 < call->n_children; i++) {
    json_t *word = evaluate(f, argument(call, i));
    if (!json_is_string(word)) return fault(f, call, "of_layers takes kinds and keys as strings");
    json_array_append(words, word);
  }
  if (!layers || !kinds || json_is_null(layers)) return layers && kinds ? json_null() : NULL;
  const char *wrong = json_is_object(layers) ? NULL : "no object", *kind = json_string_value(json_array_get(words, 0));
  const char *name = expression_keys(f->arena, argument(call, 0));
  json_t *keys = json_copy(words);
  json_array_remove(keys, 0);
  const json_t *value = wrong ? NULL : value_of_layers(f->arena, layers, kinds, kind, keep(f, keys), &wrong);
  if (wrong) return fault(f, call, "%s: %s: %s", f->file, name, wrong);
  return value ? (json_t *)value : json_null();
}

static json_t *call_value(Facts *f, const Ast *call) {
  const char *name = call->children[0]->kind == AST_NAME ? call->children[0]->name : "";
  if (strcmp(name, "has") == 0) return weight_value(f, call, false);
  if (strcmp(name, "dims") == 0) return weight_value(f, call, true);
  if (strcmp(name, "same") == 0) return same_value(f, call);
  if (strcmp(name, "fits") == 0) return fits_value(f, call);
  if (strcmp(name, "first") == 0) return first_value(f, call);
  if (strcmp(name, "absent") == 0) return absent_value(f, call);
  if (strcmp(name, "one_of") == 0) return one_of_value(f, call);
  if (strcmp(name, "all_of") == 0) return all_of_value(f, call);
  if (strcmp(name, "letters") == 0) return letters_value(f, call);
  if (strcmp(name, "of_layers") == 0) return of_layers_value(f, call);
  return fault(f, call,
               "a checkpoint block has the functions has, dims, same, fits, first, absent, one_of, all_of, letters and "
               "of_layers, no others");
}

// ---- all kinds ----

static json_t *list_value(Facts *f, const Ast *node) {
  json_t *list = keep(f, json_array());
  for (uint32_t i = 0; i < node->n_children; i++) {
    json_t *item = evaluate(f, node->children[i]);
    if (!item) return NULL;
    json_array_append(list, item);
  }
  return list;
}

static json_t *choice_value(Facts *f, const Ast *node) {
  json_t *condition = truth_value(f, node->children[0]);
  return condition ? evaluate(f, node->children[json_is_true(condition) ? 1 : 2]) : NULL;
}

static json_t *constant_value(Facts *f, const Ast *node) {
  switch (node->kind) {
    case AST_NUMBER:
      return keep(f, node->is_integer ? json_integer(node->integer) : json_real(node->number));
    case AST_STRING:
      return keep(f, json_string(node->text));
    case AST_NONE:
      return json_null();
    case AST_TRUE:
      return json_true();
    case AST_FALSE:
      return json_false();
    default:
      return fault(f, node, "a checkpoint block has no %s", ast_kind_text(node->kind));
  }
}

static json_t *evaluate(Facts *f, const Ast *node) {
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

json_t *expression_value(Facts *facts, const Ast *node) { return evaluate(facts, node); }

int expression_truth(Facts *facts, const Ast *node) {
  json_t *value = truth_value(facts, node);
  return value ? json_is_true(value) : -1;
}

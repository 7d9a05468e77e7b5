/* The functions that a `checkpoint` block may call. See expression.h, which names them.
 *
 * In: a call, whose arguments are expressions, and Facts. Out: its value. Refused: other numbers and kinds of arguments,
 * other functions, and weights that cannot be read. */
#include <fnmatch.h>
#include <string.h>

#include "import/expression.h"
#include "import/layer_values.h"
#include "import/value_text.h"

/* has("w"), and the dims of dims("w", i); the name is a text. */
static json_t *weight_value(Facts *f, const Ast *call, bool wants_dims) {
  json_t *name = call->n_children > 1 ? expression_value(f, call_argument(call, 0)) : NULL;
  if (!name || !json_is_string(name) || call->n_children != (wants_dims ? 3 : 2))
    return facts_fault(f, call, "%s", wants_dims ? "dims takes the name of a weight and an axis" : "has takes a name");
  const WeightEntry *entry = f->weights ? weight_set_find(f->weights, json_string_value(name)) : NULL;
  if (!wants_dims) return json_boolean(entry != NULL);
  json_t *axis = expression_value(f, call_argument(call, 1));
  json_int_t i = axis && json_is_integer(axis) ? json_integer_value(axis) : -1;
  if (!entry || i < 0 || i >= entry->tensor->rank) return json_null();
  return facts_keep(f, json_integer(entry->tensor->dims[i]));
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
  if (call->n_children != 3) return facts_fault(f, call, "same takes the names of two weights");
  json_t *a = expression_value(f, call_argument(call, 0)), *b = a ? expression_value(f, call_argument(call, 1)) : NULL;
  if (!a || !b) return NULL;
  if (!json_is_string(a) || !json_is_string(b)) return facts_fault(f, call, "same takes the names of two weights");
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
  const json_t *pattern = call->n_children > 1 ? expression_value(f, call_argument(call, 0)) : NULL;
  if (!pattern || !json_is_string(pattern)) return facts_fault(f, call, "fits takes the name of a weight and its sizes");
  const uint32_t rank = call->n_children - 2;
  int64_t *wanted = ARENA_ARRAY(f->arena, int64_t, rank);
  for (uint32_t i = 0; i < rank; i++) {
    const json_t *size = expression_value(f, call_argument(call, i + 1));
    if (!size) return NULL;
    if (!json_is_null(size) && !json_is_integer(size)) return facts_fault(f, call, "fits takes whole numbers as sizes");
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
  const Ast *key = call->n_children == 2 ? call_argument(call, 0) : NULL;
  if (!key || (key->kind != AST_NAME && key->kind != AST_DOT)) return facts_fault(f, call, "absent takes the name of a key");
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

static json_t *one_of_value(Facts *f, const Ast *call) {
  json_t *value = call->n_children > 1 ? expression_value(f, call_argument(call, 0)) : NULL;
  if (!value) return NULL;
  for (uint32_t i = 1; i + 1 < call->n_children; i++) {
    json_t *other = expression_value(f, call_argument(call, i));
    if (!other) return NULL;
    if (values_are_equal(value, other)) return json_true();
  }
  return json_false();
}

/* Whether every element of a list is one of what follows; a missing list has none. */
static json_t *all_of_value(Facts *f, const Ast *call) {
  json_t *list = call->n_children > 1 ? expression_value(f, call_argument(call, 0)) : NULL, *item;
  if (!list || json_is_null(list)) return list ? json_true() : NULL;
  if (!json_is_array(list))
    return facts_fault(f, call, "%s: %s is %s, where a list is expected", f->file,
                 expression_keys(f->arena, call_argument(call, 0)), value_kind(list));
  size_t i, known = 0;
  json_array_foreach(list, i, item) {
    for (uint32_t k = 1; k + 1 < call->n_children; k++) {
      json_t *other = expression_value(f, call_argument(call, k));
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
  json_t *text = call->n_children == 2 ? expression_value(f, call_argument(call, 0)) : NULL;
  if (!text || json_is_null(text)) return text;
  if (!json_is_string(text))
    return facts_fault(f, call, "%s: %s is %s, where a string is expected", f->file,
                 expression_keys(f->arena, call_argument(call, 0)), value_kind(text));
  json_t *list = facts_keep(f, json_array());
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
  if (call->n_children < 5) return facts_fault(f, call, "of_layers takes an object, a list of kinds, a kind and keys");
  json_t *layers = expression_value(f, call_argument(call, 0)), *kinds = expression_value(f, call_argument(call, 1));
  json_t *words = facts_keep(f, json_array());
  for (uint32_t i = 2; i + 1 < call->n_children; i++) {
    json_t *word = expression_value(f, call_argument(call, i));
    if (!json_is_string(word)) return facts_fault(f, call, "of_layers takes kinds and keys as strings");
    json_array_append(words, word);
  }
  if (!layers || !kinds || json_is_null(layers)) return layers && kinds ? json_null() : NULL;
  const char *wrong = json_is_object(layers) ? NULL : "no object", *kind = json_string_value(json_array_get(words, 0));
  const char *name = expression_keys(f->arena, call_argument(call, 0));
  json_t *keys = json_copy(words);
  json_array_remove(keys, 0);
  const json_t *value = wrong ? NULL : value_of_layers(f->arena, layers, kinds, kind, facts_keep(f, keys), &wrong);
  if (wrong) return facts_fault(f, call, "%s: %s: %s", f->file, name, wrong);
  return value ? (json_t *)value : json_null();
}

json_t *checkpoint_call(Facts *f, const Ast *call) {
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
  return facts_fault(f, call,
               "a checkpoint block has the functions has, dims, same, fits, first, absent, one_of, all_of, letters and "
               "of_layers, no others");
}

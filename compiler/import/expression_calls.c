/* The functions that a `checkpoint` block may call. See expression.h, which names them.
 *
 * In: a call, the values of its arguments, and Facts. Out: its value. Refused: other numbers and kinds of arguments,
 * other functions, weights that cannot be read. `first` and `absent`, which do not need all values, are in
 * expression.c. */
#include <fnmatch.h>
#include <string.h>

#include "import/expression.h"
#include "import/layer_values.h"
#include "import/value_text.h"

/* has("w"); the name is a text. */
static json_t *has_value(Facts *f, const Ast *call, json_t **given, uint32_t n) {
  if (n != 1 || !json_is_string(given[0])) return facts_fault(f, call, "has takes a name");
  return json_boolean(f->weights && weight_set_find(f->weights, json_string_value(given[0])));
}

/* dims("w", i): null if there is no such weight or axis. */
static json_t *dims_value(Facts *f, const Ast *call, json_t **given, uint32_t n) {
  if (n != 2 || !json_is_string(given[0])) return facts_fault(f, call, "dims takes the name of a weight and an axis");
  const WeightEntry *entry = f->weights ? weight_set_find(f->weights, json_string_value(given[0])) : NULL;
  json_int_t i = json_is_integer(given[1]) ? json_integer_value(given[1]) : -1;
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

/* same("a", "b"): the file has no a, or it holds the numbers of b. Where an adapter holds b whole, what was tied to it
 * keeps the numbers of the base, as in peft, and the file does not have them any more. */
static json_t *same_value(Facts *f, const Ast *call, json_t **given, uint32_t n) {
  const json_t *a = n == 2 ? given[0] : NULL, *b = n == 2 ? given[1] : NULL;
  if (!json_is_string(a) || !json_is_string(b)) return facts_fault(f, call, "same takes the names of two weights");
  const WeightEntry *left = f->weights ? weight_set_find(f->weights, json_string_value(a)) : NULL;
  const WeightEntry *right = f->weights ? weight_set_find(f->weights, json_string_value(b)) : NULL;
  if (!left) return json_boolean(!right || !right->is_of_adapter);
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
static json_t *fits_value(Facts *f, const Ast *call, json_t **given, uint32_t n) {
  const json_t *pattern = n ? given[0] : NULL;
  if (!json_is_string(pattern)) return facts_fault(f, call, "fits takes the name of a weight and its sizes");
  const uint32_t rank = n - 1;
  int64_t *wanted = ARENA_ARRAY(f->arena, int64_t, rank);
  for (uint32_t i = 0; i < rank; i++) {
    const json_t *size = given[i + 1];
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

static json_t *one_of_value(Facts *f, const Ast *call, json_t **given, uint32_t n) {
  if (!n) return facts_fault(f, call, "one_of takes a value and those that it may be");
  for (uint32_t i = 1; i < n; i++)
    if (values_are_equal(given[0], given[i])) return json_true();
  return json_false();
}

/* Whether every element of a list is one of what follows; a missing list has none. */
static json_t *all_of_value(Facts *f, const Ast *call, json_t **given, uint32_t n) {
  json_t *list = n ? given[0] : NULL, *item;
  if (!list || json_is_null(list)) return json_true();
  if (!json_is_array(list))
    return facts_fault(f, call, "%s: %s is %s, where a list is expected", f->file,
                 expression_keys(f->arena, call_argument(call, 0)), value_kind(list));
  size_t i, known = 0;
  json_array_foreach(list, i, item) {
    bool is_known = false;
    for (uint32_t k = 1; k < n && !is_known; k++) is_known = values_are_equal(item, given[k]);
    known += is_known;
  }
  return json_boolean(known == json_array_size(list));
}

/* letters(text): a list of its characters; of a missing text null. */
static json_t *letters_value(Facts *f, const Ast *call, json_t **given, uint32_t n) {
  if (n != 1) return facts_fault(f, call, "letters takes a text");
  json_t *text = given[0];
  if (json_is_null(text)) return text;
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
static json_t *of_layers_value(Facts *f, const Ast *call, json_t **given, uint32_t n) {
  if (n < 4) return facts_fault(f, call, "of_layers takes an object, a list of kinds, a kind and keys");
  json_t *keys = facts_keep(f, json_array());
  for (uint32_t i = 2; i < n; i++) {
    if (!json_is_string(given[i])) return facts_fault(f, call, "of_layers takes kinds and keys as strings");
    if (i > 2) json_array_append(keys, given[i]);
  }
  if (json_is_null(given[0])) return given[0];
  const char *wrong = json_is_object(given[0]) ? NULL : "no object", *kind = json_string_value(given[2]);
  const char *name = expression_keys(f->arena, call_argument(call, 0));
  const json_t *value = wrong ? NULL : value_of_layers(f->arena, given[0], given[1], kind, keys, &wrong);
  if (wrong) return facts_fault(f, call, "%s: %s: %s", f->file, name, wrong);
  return value ? (json_t *)value : json_null();
}

json_t *checkpoint_call(Facts *f, const Ast *call, json_t **given, uint32_t n) {
  typedef json_t *Function(Facts * f, const Ast *call, json_t **given, uint32_t n);
  static const struct {
    const char *name;
    Function *value;
  } functions[] = {{"has", has_value},       {"dims", dims_value},     {"same", same_value},
                   {"fits", fits_value},     {"one_of", one_of_value}, {"all_of", all_of_value},
                   {"letters", letters_value}, {"of_layers", of_layers_value}};
  const char *name = call->children[0]->kind == AST_NAME ? call->children[0]->name : "";
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (strcmp(functions[i].name, name) == 0) return functions[i].value(f, call, given, n);
  return facts_fault(f, call,
                     "a checkpoint block has the functions has, dims, same, fits, first, absent, one_of, all_of, "
                     "letters and of_layers, no others");
}

/* The account of a folder. See account.h.
 *
 * `ignore "a"` in the block leaves out all that is in the object a; `ignore "a.b"` that one key alone. An object is
 * accounted for if all that is in it is. Of tensors, heads are left out only if somebody says for what the checkpoint
 * is: its class, its modules.json, or --task. */
#include "import/account.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "import/expression.h"
#include "import/generation_keys.h"
#include "import/key_types.h"
#include "import/value_text.h"

// ---- keys ----

typedef struct Keys {
  Arena *arena;
  Diag *diag;
  const Folder *folder;
  Map named;   /* by expressions of the block */
  Map ignored; /* by the block */
} Keys;

static const char *const COMMON[] = {
#define IGNORED(key) key,
#define READ(key) key,
#include "import/ignored_keys.def"
};
enum { N_COMMON = sizeof COMMON / sizeof *COMMON };

static bool is_common(const char *key) {
  for (size_t i = 0; i < N_COMMON; i++)
    if (strcmp(COMMON[i], key) == 0) return true;
  return false;
}

static bool is_ignored_by_user(const Folder *folder, const char *name) {
  return folder->ignored && map_has(folder->ignored, name);
}

static void report_unread(const Keys *k, const char *name, const json_t *value) {
  StrBuf shown = strbuf_new(k->arena);
  value_print(&shown, value);
  diag_error_at(k->diag, k->folder->config_path, DIAG_CHECKPOINT,
                "nothing reads \"%s\" (%s): if it changes what the model computes, the result is wrong; --ignore %s "
                "says that it does not",
                name, shown.text, name);
}

static void report_null(const Keys *k, const char *name) {
  diag_error_at(k->diag, k->folder->config_path, DIAG_CHECKPOINT, "\"%s\" is null, and a value is needed", name);
}

/* Keys at which null is another thing than no key, whatever the family: those of positions, with which transformers
 * computes as they stand, and those that its code reads in any config with a default of its own (null for is_causal
 * lets tokens see those behind them). */
static bool is_needed(const char *name) {
  static const char *const rotation[] = {"rope_type", "rope_theta", "partial_rotary_factor", "factor"};
  static const char *const anywhere[] = {"is_causal", "chunk_size_feed_forward", "return_dict", "auto_map",
                                         "num_labels"};
  const char *dot = strrchr(name, '.'), *key = dot ? dot + 1 : name;
  bool found = false;
  for (size_t i = 0; strncmp(name, "rope_parameters.", 16) == 0 && i < sizeof rotation / sizeof *rotation; i++)
    found = found || strcmp(key, rotation[i]) == 0;
  for (size_t i = 0; i < sizeof anywhere / sizeof *anywhere; i++) found = found || strcmp(key, anywhere[i]) == 0;
  return found;
}

/* Without a base in rope_parameters, rope_theta is the base even where it is null. */
static bool is_null_base(const Keys *k) {
  const json_t *base = json_object_get(json_object_get(k->folder->config, "rope_parameters"), "rope_theta");
  return map_has(&k->named, "rope_parameters.rope_theta") && (!base || json_is_null(base)) &&
         json_is_null(json_object_get(k->folder->names, "rope_theta"));
}

/* A share of columns that turn, below 0. */
static bool is_negative_share(const char *key, const json_t *value) {
  return strcmp(key, "partial_rotary_factor") == 0 && json_is_number(value) && json_number_value(value) < 0;
}

/* Said within the settings of a part, and what these mean without it. */
static bool is_default_of_part(const char *key, const json_t *value) {
  static const struct {
    const char *key, *value;
  } defaults[] = {
#define PART_DEFAULT(key, value) {key, value},
#include "import/part_defaults.def"
  };
  for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
    if (strcmp(key, defaults[i].key) != 0) continue;
    json_t *usual = json_loads(defaults[i].value, JSON_DECODE_ANY, NULL);
    const bool is_equal = usual && values_are_equal(usual, value);
    json_decref(usual);
    return is_equal;
  }
  return false;
}

/* `path`: "" or that of the object with a dot behind it. What changes nothing at the top changes nothing in an object
 * either. */
static void account_for_object(const Keys *k, const json_t *object, const char *path, unsigned depth) {
  enum { MAX_DEPTH = 8 };
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    const char *name = arena_printf(k->arena, "%s%s", path, key);
    if (!*path && generation_has_key(key)) continue; /* of generation alone: account_for_generation sees to it */
    if (json_is_null(value) && is_needed(name) && !map_has(&k->ignored, name)) report_null(k, name);
    if (is_negative_share(key, value) && !is_ignored_by_user(k->folder, name))
      diag_error_at(k->diag, k->folder->config_path, DIAG_CHECKPOINT, "\"%s\" is below 0; --ignore %s passes over it",
                    name, name);
    const bool is_tuple = json_is_false(value) && strcmp(key, "return_dict") == 0; /* in which heads look for names */
    if (json_is_null(value) || (is_common(key) && !is_tuple) || map_has(&k->ignored, name)) continue;
    if (is_ignored_by_user(k->folder, name)) continue;
    if (map_has(&k->named, arena_printf(k->arena, "%s.*", name))) continue; /* whose members are read one by one */
    if (json_is_object(value) && json_object_size(value) && depth < MAX_DEPTH)
      account_for_object(k, value, arena_printf(k->arena, "%s.", name), depth + 1);
    else if (!map_has(&k->named, name) && !(depth && is_default_of_part(key, value)))
      report_unread(k, name, value);
  }
}

/* A model that writes does so with the settings of its checkpoint. */
static void account_for_generation(const Keys *k) {
  const char *key;
  json_t *value;
  json_object_foreach(k->folder->generation, key, value) {
    if (json_is_null(value) || is_ignored_by_user(k->folder, key)) continue;
    const char *name = arena_printf(k->arena, "generation.%s", key);
    const bool is_named = map_has(&k->named, name) || map_has(&k->ignored, name);
    const char *fault = generation_wrong_kind(k->arena, key, value);
    if (!fault && !is_named) fault = generation_fault(json_object_get(k->folder->names, "generation"), key, value);
    if (fault)
      diag_error_at(k->diag, k->folder->generation_path, DIAG_CHECKPOINT,
                    "\"%s\": %s; --ignore %s leaves it out", key, fault, key);
  }
}

/* The token for padding of a type where config.json does not say it. */
static json_int_t default_padding(const char *type) {
  static const struct {
    const char *type;
    json_int_t id;
  } types[] = {
#define PADDING(type, id) {type, id},
#define NO_ROW(type)
#include "import/padding.def"
  };
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(type, types[i].type) == 0) return types[i].id;
  return 0;
}

static bool has_row_for_padding(const char *type) {
  static const char *const rowless[] = {
#define PADDING(type, id)
#define NO_ROW(type) type,
#include "import/padding.def"
  };
  for (size_t i = 0; i < sizeof rowless / sizeof *rowless; i++)
    if (strcmp(type, rowless[i]) == 0) return false;
  return true;
}

/* A token for padding that is no row of the table of words; negative ones count from the table's end. */
static void check_padding(const Keys *k) {
  const char *type = json_string_value(json_object_get(k->folder->config, "model_type"));
  const json_t *said = json_object_get(k->folder->config, "pad_token_id");
  const json_t *words = json_object_get(k->folder->config, "vocab_size");
  if (!type || !has_row_for_padding(type) || !json_is_integer(words) || (said && !json_is_integer(said))) return;
  const json_int_t rows = json_integer_value(words), id = said ? json_integer_value(said) : default_padding(type);
  if ((id < rows && id >= -rows) || is_ignored_by_user(k->folder, "pad_token_id")) return;
  diag_error_at(k->diag, k->folder->config_path, DIAG_CHECKPOINT,
                "\"pad_token_id\" is %lld%s, which is no row of a table of %lld words; --ignore pad_token_id passes "
                "over it",
                (long long)id, said ? "" : " where config.json does not say it", (long long)rows);
}

/* The value at "a.b", or NULL. */
static const json_t *value_at(Arena *arena, const json_t *object, const char *path) {
  const char *dot = strchr(path, '.');
  if (!dot) return json_object_get(object, path);
  const char *first = arena_printf(arena, "%.*s", (int)(dot - path), path);
  return value_at(arena, json_object_get(object, first), dot + 1);
}

static Keys keys_of(Arena *arena, Diag *diag, const Family *family, const Folder *folder) {
  const Ast *block = family->checkpoint->children[1];
  Keys k = {arena, diag, folder, map_new(arena), map_new(arena)};
  for (uint32_t i = 0; i < block->n_children; i++) {
    const Ast *entry = block->children[i];
    for (uint32_t n = 0; entry->kind == AST_IGNORE && n < entry->n_children; n++)
      map_put(&k.ignored, entry->children[n]->text, NULL);
    if (entry->kind != AST_IGNORE && entry->kind != AST_LISTING) expression_add_keys(&k.named, entry);
  }
  return k;
}

void account_for_keys(Arena *arena, Diag *diag, const Family *family, const Folder *folder) {
  const Keys k = keys_of(arena, diag, family, folder);
  account_for_object(&k, folder->config, "", 0);
  if (is_null_base(&k)) report_null(&k, "rope_theta");
  check_padding(&k);
  if (family_writes(family)) account_for_generation(&k);
  const Texts needed = family_texts(arena, family, "needed");
  for (size_t i = 0; i < needed.n; i++)
    if (json_is_null(value_at(arena, folder->config, needed.items[i]))) report_null(&k, needed.items[i]);
}

// ---- dropouts ----

/* What training changes at random that is no dropout: first how sounds are hidden, then how places of pictures move. */
static const char *const AT_RANDOM[] = {"mask_time_prob", "mask_feature_prob", "pos_embed_jitter", "pos_embed_rescale",
                                        "pos_embed_shift"};
enum { N_AT_RANDOM = sizeof AT_RANDOM / sizeof *AT_RANDOM, N_OF_SOUNDS = 2 };

/* What config.json says, or what the class of its type has where it says nothing; NULL: neither. To be given back. */
static json_t *said_or_default(const json_t *config, const char *key) {
  json_t *said = json_object_get(config, key);
  return said ? json_incref(said) : key_default(json_string_value(json_object_get(config, "model_type")), key);
}

static bool is_at_random(const json_t *object, const char *key) {
  size_t i = 0;
  while (i < N_AT_RANDOM && strcmp(key, AT_RANDOM[i]) != 0) i++;
  if (i >= N_OF_SOUNDS) return i < N_AT_RANDOM;
  json_t *hides = said_or_default(object, "apply_spec_augment");
  const bool is_off = json_is_false(hides);
  json_decref(hides);
  return !is_off;
}

/* Whether training changes something by this key that the text leaves alone. Keys of training that all families ignore
 * change nothing of a run; a block that ignores one itself says that the class reads it nowhere. */
static bool is_lacking(const Keys *k, const json_t *object, const char *key, const char *name, const json_t *value) {
  if (is_ignored_by_user(k->folder, name) || !json_is_number(value) || json_number_value(value) <= 0) return false;
  if (is_at_random(object, key)) return true;
  return strstr(key, "drop") && is_common(key) && !map_has(&k->named, name) && !map_has(&k->ignored, name);
}

static void add_value(const Keys *k, const char *name, const json_t *value, Texts *found) {
  vec_push(k->arena, found, arena_printf(k->arena, "%s = %g", name, json_number_value(value)));
}

static void add_lacking(const Keys *k, const json_t *object, const char *path, Texts *found) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    const char *name = arena_printf(k->arena, "%s%s", path, key);
    const bool is_left = is_ignored_by_user(k->folder, name) || map_has(&k->ignored, name);
    if (json_is_object(value) && !is_left) add_lacking(k, value, arena_printf(k->arena, "%s.", name), found);
    if (is_lacking(k, object, key, name, value)) add_value(k, name, value, found);
  }
}

/* The same of what the class has for keys that config.json lacks. */
static void add_lacking_defaults(const Keys *k, const char *const *keys, size_t n, Texts *found) {
  const json_t *config = k->folder->config;
  for (size_t i = 0; i < n; i++) {
    json_t *value = json_object_get(config, keys[i]) ? NULL : said_or_default(config, keys[i]);
    if (value && is_lacking(k, config, keys[i], keys[i], value)) add_value(k, keys[i], value, found);
    json_decref(value);
  }
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

void account_lacking_dropouts(StrBuf *out, const Family *family, const Folder *folder) {
  const Keys k = keys_of(out->arena, NULL, family, folder);
  Texts found = {0};
  add_lacking(&k, folder->config, "", &found);
  if (family->is_embedded) { /* the types of another file are not those of transformers */
    add_lacking_defaults(&k, COMMON, N_COMMON, &found);
    add_lacking_defaults(&k, AT_RANDOM, N_AT_RANDOM, &found);
  }
  if (found.n) qsort((void *)found.items, found.n, sizeof *found.items, by_name);
  for (size_t i = 0; i < found.n; i++) strbuf_printf(out, "%s%s", i ? ", " : "", found.items[i]);
}

// ---- tensors ----

static bool matches(const char *pattern, const char *name) { return fnmatch(pattern, name, FNM_NOESCAPE) == 0; }

static bool is_buffer(const FileTensor *tensor) {
  static const struct {
    const char *pattern;
    uint32_t least, most;
  } buffers[] = {
#define BUFFER(pattern, least, most) {pattern, least, most},
#include "import/buffers.def"
  };
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
    const bool fits = tensor->rank >= buffers[i].least && tensor->rank <= buffers[i].most;
    if (fits && matches(buffers[i].pattern, tensor->name)) return true;
  }
  return false;
}

static bool is_ignored_tensor(const Folder *folder, const char *name) {
  for (size_t i = 0; folder->ignored && i < folder->ignored->n; i++)
    if (matches(folder->ignored->items[i].key, name)) return true;
  return false;
}

static bool is_in(const Map *map, const WeightEntry *entry) {
  return map_has(map, entry->name) || map_has(map, entry->tensor->name);
}

/* The names of tensors that are neither read nor known to change nothing. */
static Texts unread_tensors(Arena *arena, const Family *family, const Folder *folder, const TensorUse *use) {
  const Texts unused = family_texts(arena, family, "unused");
  Texts found = {0};
  for (size_t i = 0; i < folder->weights->entries.n; i++) {
    const WeightEntry *entry = &folder->weights->entries.items[i];
    const char *name = entry->tensor->name;
    bool is_known = is_in(use->used, entry) || entry->is_part || map_has(use->copies, name);
    is_known = is_known || is_buffer(entry->tensor) || is_ignored_tensor(folder, name);
    for (size_t k = 0; use->head_is_stated && k < unused.n; k++) is_known = is_known || matches(unused.items[k], name);
    if (use->head_is_stated && use->of_others) is_known = is_known || is_in(use->of_others, entry);
    if (!is_known) vec_push(arena, &found, name);
  }
  return found;
}

bool has_unread_tensors(Arena *arena, const Family *family, const Folder *folder, const TensorUse *use) {
  return unread_tensors(arena, family, folder, use).n > 0;
}

static const char *tensor_advice(const Family *family, const char *name, const TensorUse *use) {
  const bool is_head = use->of_others && map_has(use->of_others, name);
  if (is_head) return "--task says what of it is wanted, since the folder names no class";
  return family_param(family, "task") >= 0 && !use->head_is_stated
             ? "if they are of a head that is not wanted, --task says what is; --ignore NAME leaves tensors out"
             : "if they change nothing, --ignore NAME leaves them out";
}

void account_for_tensors(Arena *arena, Diag *diag, const Family *family, const Folder *folder,
                         const TensorUse *use) {
  enum { MOST_NAMED = 8 };
  const Texts unread = unread_tensors(arena, family, folder, use);
  if (!unread.n) return;
  StrBuf names = strbuf_new(arena);
  for (size_t i = 0; i < unread.n && i < MOST_NAMED; i++)
    strbuf_printf(&names, "%s\"%s\"", i ? ", " : "", unread.items[i]);
  if (unread.n > MOST_NAMED) strbuf_printf(&names, " and %zu more", unread.n - MOST_NAMED);
  diag_error_at(diag, folder->weights->path, DIAG_CHECKPOINT,
                "nothing reads the tensor%s %s: the model would be another one than the checkpoint's; %s",
                unread.n > 1 ? "s" : "", names.text, tensor_advice(family, unread.items[0], use));
}

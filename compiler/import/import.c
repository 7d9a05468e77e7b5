/* The family of a checkpoint, and what it makes of it: the values of its model's parameters. See import.h; the text
 * with them is write.c's.
 *
 * In: the entries of the block, config.json, the names of the weights. Out: a value for each parameter that one sets.
 * Refused, with the file, the key and the line that asks for it: values of another kind than the parameter's default,
 * conditions that do not hold, settings of parameters that the model does not have. A key that is missing leaves the
 * default, with a warning if the setting is that key alone (`first(key, otherwise)` says that it may be missing). Keys
 * of config.json that the block does not name are warnings, under --strict errors: a key that decides something must
 * not be overlooked. */
#include <string.h>

#include "import/expression.h"
#include "import/generation.h"
#include "import/import.h"

// ---- families ----

typedef struct Embedded {
  const char *name, *text;
  const unsigned *size;
} Embedded;

#define FAMILY(name)                 \
  extern const char family_##name[]; \
  extern const unsigned family_##name##_size;
#include "import/families.def"

static const Embedded embedded[] = {
#define FAMILY(name) {"models/" #name ".tfm", family_##name, &family_##name##_size},
#include "import/families.def"
};

enum { N_EMBEDDED = sizeof embedded / sizeof *embedded };

/* NULL after an error: a fault in the text, no block, or not one model. */
static Family *family_of(Arena *arena, Diag *diag, const ParsedProgram *program) {
  Family *family = ARENA_NEW(arena, Family);
  unsigned n_models = 0, n_blocks = 0;
  for (size_t i = 0; program && i < program->files.n; i++) {
    const ParsedFile *file = &program->files.items[i];
    if (!file->is_main) continue;
    family->source = file->source;
    for (uint32_t k = 0; k < file->ast->n_children; k++) {
      const Ast *node = file->ast->children[k];
      if (node->kind == AST_CHECKPOINT) n_blocks++, family->checkpoint = node;
      if (node->kind == AST_LAYER && node->flag) n_models++, family->model = node;
    }
  }
  if (!program) return NULL;
  if (program->files.n == 1 && n_models == 1 && n_blocks == 1) return family;
  diag_error_at(
      diag, family->source->path, DIAG_CHECKPOINT,
      "a family is one file with one model and one checkpoint block; this one has %u models, %u blocks and %zu "
      "includes",
      n_models, n_blocks, program->files.n - 1);
  return NULL;
}

static Family *embedded_family(Arena *arena, Map *names, Diag *diag, const Embedded *e) {
  return family_of(arena, diag, parse_text(arena, names, diag, e->name, e->text, *e->size));
}

static bool is_for(const Family *family, const char *type) {
  const Ast *types = family->checkpoint->children[0];
  for (uint32_t i = 0; i < types->n_children; i++)
    if (strcmp(types->children[i]->text, type) == 0) return true;
  return false;
}

static void report_unknown(Arena *arena, Map *names, Diag *diag, const char *type, const char *place) {
  VEC(const char *) known = {0};
  StrBuf list = strbuf_new(arena);
  for (int i = 0; i < N_EMBEDDED; i++) {
    const Family *family = embedded_family(arena, names, diag, &embedded[i]);
    const Ast *types = family ? family->checkpoint->children[0] : NULL;
    for (uint32_t k = 0; types && k < types->n_children; k++) {
      vec_push(arena, &known, types->children[k]->text);
      strbuf_printf(&list, "%s%s", list.length ? ", " : "", types->children[k]->text);
    }
  }
  const char *nearest = diag_nearest(type, known.items, known.n);
  diag_error_at(diag, place, DIAG_CHECKPOINT,
                "\"model_type\": no family is for \"%s\"%s%s%s; there are %s; --family FILE takes one of your own",
                type, nearest ? ", did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "", list.text);
}

Family *family_choose(Arena *arena, Map *names, Diag *diag, const char *type, const char *path, const char *place) {
  if (path) return family_of(arena, diag, parse_program(arena, names, diag, path));
  if (!type) {
    diag_error_at(
        diag, place, DIAG_CHECKPOINT,
        "\"model_type\" is missing or no string; it says which family the model is of; --family FILE names one");
    return NULL;
  }
  for (int i = 0; i < N_EMBEDDED; i++) {
    Family *family = embedded_family(arena, names, diag, &embedded[i]);
    if (!family || is_for(family, type)) return family;
  }
  report_unknown(arena, names, diag, type, place);
  return NULL;
}

void family_list(Arena *arena, StrBuf *out) {
  Map names = map_new(arena);
  Diag diag = diag_new(arena);
  for (int i = 0; i < N_EMBEDDED; i++) {
    const Family *family = embedded_family(arena, &names, &diag, &embedded[i]);
    if (!family) continue;
    strbuf_printf(out, "%-22s", embedded[i].name);
    const Ast *types = family->checkpoint->children[0];
    for (uint32_t k = 0; k < types->n_children; k++) strbuf_printf(out, " %s", types->children[k]->text);
    strbuf_add_char(out, '\n');
  }
}

// ---- what an evaluation knows ----

typedef struct Evaluation {
  Arena *arena;
  Diag *diag;
  const Folder *folder;
  const ImportOptions *options;
  ImportValues *values;
  Facts facts;
  Map known; /* keys that the block names, and those that change nothing */
  Map read;  /* keys that decide values of the model */
} Evaluation;

static const char *printed(Arena *arena, const json_t *value) {
  StrBuf out = strbuf_new(arena);
  value_print(&out, value);
  return out.text;
}

static void report(Evaluation *e, bool is_error, const char *text) {
  if (is_error)
    diag_error_at(e->diag, e->folder->config_path, DIAG_CHECKPOINT, "%s", text);
  else
    diag_warning_at(e->diag, e->folder->config_path, DIAG_CHECKPOINT_KEY, "%s", text);
}

// ---- settings ----

static int find_param(const Ast *params, const char *name) {
  for (uint32_t i = 0; i < params->n_children; i++)
    if (params->children[i]->name == name) return (int)i;
  return -1;
}

/* Whether the `generate` block takes a setting from the parameter: several tokens may end a row. */
static bool is_of_generation(const Ast *model, const char *name) {
  const Ast *members = model->children[1];
  for (uint32_t i = 0; i < members->n_children; i++) {
    const Ast *block = members->children[i];
    for (uint32_t k = 0; block->kind == AST_GENERATE && k < block->n_children; k++) {
      const Ast *value = block->children[k]->children[0];
      if (value->kind == AST_NAME && value->name == name) return true;
    }
  }
  return false;
}

/* Whether the default of parameter i is a whole number, as far as it shows without evaluating it: `4 * d` of one is
 * one. A default may use what stands before it, so that the search ends. */
static bool is_whole(const Ast *params, int i, const Ast *otherwise) {
  if (!otherwise) return false;
  if (otherwise->kind == AST_NUMBER) return otherwise->is_integer;
  if (otherwise->kind == AST_NAME) {
    int before = find_param(params, otherwise->name);
    return before >= 0 && before < i && is_whole(params, before, params->children[before]->children[1]);
  }
  if (otherwise->kind != AST_BINARY || strcmp(otherwise->name, "/") == 0) return false;
  return is_whole(params, i, otherwise->children[0]) && is_whole(params, i, otherwise->children[1]);
}

/* What the default of parameter i says about the kind of value; NULL: it fits, or the default says nothing. Sizes,
 * counts and ids are from 0 on. */
static const char *wanted_kind(const Ast *model, int i, const json_t *value) {
  const Ast *params = model->children[0], *param = params->children[i], *otherwise = param->children[1];
  bool is_list = json_is_array(value) && is_of_generation(model, param->name);
  switch (otherwise ? otherwise->kind : AST_NONE) {
    case AST_TRUE:
    case AST_FALSE:
      return json_is_boolean(value) ? NULL : "true or false";
    case AST_STRING:
      return json_is_string(value) ? NULL : "a string";
    case AST_LIST:
      return json_is_array(value) ? NULL : "a list";
    default:
      if (!otherwise || is_list) return NULL;
      if (!is_whole(params, i, otherwise)) return json_is_number(value) ? NULL : "a number";
      if (!json_is_integer(value)) return "a whole number";
      return json_integer_value(value) < 0 ? "a number from 0 on" : NULL;
  }
}

static void report_missing(Evaluation *e, const Ast *setting, const Ast *param) {
  const Ast *value = setting->children[0];
  const char *keys = expression_keys(e->arena, value);
  bool is_key = value->kind == AST_NAME || value->kind == AST_DOT;
  if (!is_key || strncmp(keys, "\"sentence.", 10) == 0 || strncmp(keys, "\"generation.", 12) == 0) return;
  report(e, e->options->is_strict,
         arena_printf(e->arena, "%s is missing; '%s' of the model keeps its default", keys, param->name));
  diag_note(e->diag, setting->span, "the family reads it here");
}

static void evaluate_setting(Evaluation *e, const Ast *setting) {
  const Ast *params = e->values->family->model->children[0];
  int i = find_param(params, setting->name);
  if (i < 0) {
    diag_error(e->diag, setting->span, DIAG_CHECKPOINT, "model %s has no config value '%s'",
               e->values->family->model->name, setting->name);
    return;
  }
  json_t *value = expression_value(&e->facts, setting->children[0]);
  if (!value) return;
  if (json_is_null(value)) {
    report_missing(e, setting, params->children[i]);
    return;
  }
  const char *wanted = wanted_kind(e->values->family->model, i, value);
  if (!wanted) {
    e->values->of_params[i] = value;
    return;
  }
  report(e, true,
         arena_printf(e->arena, "%s: the value is %s (%s); '%s' of the model is %s",
                      expression_keys(e->arena, setting->children[0]), value_kind(value), printed(e->arena, value),
                      setting->name, wanted));
  diag_note(e->diag, setting->span, "the family reads it here");
}

// ---- what must hold ----

static void evaluate_expect(Evaluation *e, const Ast *entry) {
  json_t *found = expression_value(&e->facts, entry->children[0]);
  json_t *wanted = found ? expression_value(&e->facts, entry->children[1]) : NULL;
  if (!wanted || json_is_null(found) || values_are_equal(found, wanted)) return;
  report(e, true,
         arena_printf(e->arena, "%s is %s; this family computes %s only", expression_keys(e->arena, entry->children[0]),
                      printed(e->arena, found), printed(e->arena, wanted)));
  diag_note(e->diag, entry->span, "the family expects it here");
}

static void evaluate_require(Evaluation *e, const Ast *entry) {
  int truth = expression_truth(&e->facts, entry->children[0]);
  if (truth != 0) return;
  report(e, true, arena_printf(e->arena, "%s (%s)", entry->text, expression_keys(e->arena, entry->children[0])));
  diag_note(e->diag, entry->span, "the family requires it here");
}

static void evaluate_entry(Evaluation *e, const Ast *entry) {
  if (entry->kind == AST_SETTING) evaluate_setting(e, entry);
  if (entry->kind == AST_SETTING) expression_add_keys(&e->read, entry->children[0]);
  if (entry->kind == AST_EXPECT) evaluate_expect(e, entry);
  if (entry->kind == AST_REQUIRE) evaluate_require(e, entry);
  for (uint32_t i = 0; entry->kind == AST_IGNORE && i < entry->n_children; i++)
    map_put(&e->known, entry->children[i]->text, NULL);
  if (entry->kind != AST_IGNORE) expression_add_keys(&e->known, entry);
}

// ---- keys that nobody knows ----

static bool is_common(const char *key) {
  static const char *const common[] = {
#define IGNORED(key) key,
#include "import/ignored_keys.def"
  };
  for (size_t i = 0; i < sizeof common / sizeof *common; i++)
    if (strcmp(common[i], key) == 0) return true;
  return false;
}

/* Reports what is unknown in an object; `path` is "" or "rope_parameters.". What changes nothing at the top changes
 * nothing in an object either. */
static void report_unread(Evaluation *e, const json_t *object, const char *path, unsigned depth) {
  enum { MAX_DEPTH = 8 };
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    const char *name = arena_printf(e->arena, "%s%s", path, key);
    bool is_known = map_has(&e->known, name) || (!*path && generation_has_key(key));
    if (is_known && json_is_object(value) && !is_common(key) && depth < MAX_DEPTH)
      report_unread(e, value, arena_printf(e->arena, "%s.", name), depth + 1);
    if (is_known || is_common(key) || json_is_null(value)) continue;
    report(
        e, e->options->is_strict,
        arena_printf(e->arena, "nothing reads \"%s\" (%s): if it changes what the model computes, the result is wrong",
                     name, printed(e->arena, value)));
  }
}

static bool has_key(Arena *arena, const json_t *object, const char *path) {
  const char *dot = strchr(path, '.');
  const char *key = dot ? arena_printf(arena, "%.*s", (int)(dot - path), path) : path;
  const json_t *value = json_object_get(object, key);
  return value && !json_is_null(value) && (!dot || has_key(arena, value, dot + 1));
}

/* The keys that would decide values of the model, were they there: what the family takes without them may be wrong. */
static const char *lacking_keys(Evaluation *e) {
  StrBuf out = strbuf_new(e->arena);
  for (size_t i = 0; i < e->read.n; i++) {
    const char *key = e->read.items[i].key;
    bool is_other_file = strncmp(key, "generation", 10) == 0 || strncmp(key, "sentence", 8) == 0;
    if (!is_other_file && !has_key(e->arena, e->folder->names, key))
      strbuf_printf(&out, "%s\"%s\"", out.length ? ", " : "", key);
  }
  return out.text;
}

static void check_sentence(Evaluation *e) {
  const char *others = json_string_value(json_object_get(json_object_get(e->folder->names, "sentence"), "others"));
  if (!others) return;
  diag_error_at(e->diag, arena_printf(e->arena, "%s/modules.json", e->folder->path), DIAG_CHECKPOINT,
                "\"type\": a module %s is not known here; Transformer, Pooling and Normalize are", others);
}

/* A model that writes does so with the settings of its checkpoint. */
static void account_for_generation(Evaluation *e) {
  const Ast *members = e->values->family->model->children[1];
  for (uint32_t i = 0; i < members->n_children; i++)
    if (members->children[i]->kind == AST_GENERATE)
      generation_account(e->diag, e->folder->generation_path, json_object_get(e->folder->names, "generation"), &e->known);
}

// ---- the block ----

/* The task of the command line wins over that of the block. */
static void set_task(Evaluation *e) {
  if (!e->options->task) return;
  const Ast *params = e->values->family->model->children[0];
  for (uint32_t i = 0; i < params->n_children; i++) {
    if (strcmp(params->children[i]->name, "task") != 0) continue;
    e->values->of_params[i] = json_string(e->options->task);
    json_array_append_new(e->values->owned, e->values->of_params[i]);
    return;
  }
  diag_error_at(e->diag, NULL, DIAG_USAGE, "--task: model %s has one task only", e->values->family->model->name);
}

bool import_evaluate(Arena *arena, Diag *diag, const Family *family, const Folder *folder, const ImportOptions *options,
                     ImportValues *values) {
  const Ast *block = family->checkpoint->children[1];
  *values =
      (ImportValues){family, ARENA_ARRAY(arena, json_t *, family->model->children[0]->n_children), json_array(), ""};
  Evaluation e = {.arena = arena, .diag = diag, .folder = folder, .options = options, .values = values};
  e.known = map_new(arena);
  e.read = map_new(arena);
  e.facts = (Facts){.arena = arena,
                    .diag = diag,
                    .names = folder->names,
                    .file = folder->config_path,
                    .weights = folder->weights,
                    .values = values->owned};
  for (uint32_t i = 0; i < block->n_children; i++) evaluate_entry(&e, block->children[i]);
  set_task(&e);
  check_sentence(&e);
  report_unread(&e, folder->config, "", 0);
  account_for_generation(&e);
  values->lacking = lacking_keys(&e);
  return !diag_has_errors(diag);
}

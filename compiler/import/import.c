/* What a family's block makes of a checkpoint. See import.h; the text is write.c's, the account of keys and tensors
 * account.c's.
 *
 * In: the entries of the block, config.json, the names of the weights. Out: a value for each parameter that one sets.
 * Refused, with the file, the key and the line that asks for it: values of another kind than the parameter's default,
 * conditions that do not hold, settings of parameters that the model does not have, classes and tasks that the family
 * does not compute. A key that is missing leaves the default, with a warning (under --strict an error) if the setting
 * is that key alone; `first(key, otherwise)` says that it may be missing. */
#include "import/import.h"

#include <math.h>
#include <string.h>

#include "import/account.h"
#include "import/json_file.h"
#include "import/key_types.h"
#include "import/sentence.h"
#include "import/value_text.h"

// ---- what an evaluation knows ----

typedef struct Evaluation {
  Arena *arena;
  Diag *diag;
  const Folder *folder;
  const ImportOptions *options;
  ImportValues *values;
  Facts facts;
  Map read; /* keys that decide values of the model */
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
    if (strcmp(params->children[i]->name, name) == 0) return (int)i;
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

static bool is_infinite(const Ast *otherwise) {
  return otherwise->kind == AST_NUMBER && !otherwise->is_integer && isinf(otherwise->number);
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
      if (json_infinity(value)) return is_infinite(otherwise) ? NULL : "a finite number";
      if (!is_whole(params, i, otherwise)) return json_is_number(value) ? NULL : "a number";
      if (!json_is_integer(value)) return "a whole number";
      return json_integer_value(value) < 0 ? "a number from 0 on" : NULL;
  }
}

static bool is_said_to_be_null(Arena *arena, const json_t *object, const char *path) {
  const char *dot = strchr(path, '.');
  const json_t *value = json_object_get(object, dot ? arena_printf(arena, "%.*s", (int)(dot - path), path) : path);
  return dot ? is_said_to_be_null(arena, value, dot + 1) : value && json_is_null(value);
}

/* What the class of transformers has for a key that is missing, where that is not the default of the family's model,
 * which may be for several classes; NULL: it is. */
static json_t *value_of_class(Evaluation *e, const char *key) {
  const char *type = json_string_value(json_object_get(e->folder->config, "model_type"));
  json_t *value = e->values->family->is_embedded ? key_default(type, key) : NULL;
  return value ? facts_keep(&e->facts, value) : NULL;
}

/* A key that is not there leaves the default, and NULL is returned, or is what transformers has for it, which is; one
 * that says null asks for something that is not known here. Of a choice what was chosen counts. */
static json_t *missing_value(Evaluation *e, const Ast *setting, const Ast *param) {
  const Ast *value = setting->children[0];
  while (value->kind == AST_CHOICE)
    value = value->children[expression_truth(&e->facts, value->children[0]) > 0 ? 1 : 2];
  const char *keys = expression_keys(e->arena, value);
  bool is_key = value->kind == AST_NAME || value->kind == AST_DOT;
  const bool is_of_config = strncmp(keys, "\"sentence.", 10) != 0 && strncmp(keys, "\"generation.", 12) != 0;
  if (!is_key || !is_of_config) return NULL;
  const char *path = arena_printf(e->arena, "%.*s", (int)strlen(keys) - 2, keys + 1);
  bool is_null = is_said_to_be_null(e->arena, e->folder->names, path);
  if (is_null)
    report(e, true, arena_printf(e->arena, "%s is null; '%s' of the model needs a value", keys, param->name));
  json_t *of_class = is_null ? NULL : value_of_class(e, path);
  const char *becomes = of_class ? arena_printf(e->arena, "is %s, as in transformers", printed(e->arena, of_class))
                                 : "keeps its default";
  if (!is_null)
    report(e, e->options->is_strict,
           arena_printf(e->arena, "%s is missing; '%s' of the model %s", keys, param->name, becomes));
  diag_note(e->diag, setting->span, "the family reads it here");
  return of_class;
}

static void evaluate_setting(Evaluation *e, const Ast *setting) {
  const Ast *params = e->values->family->model->children[0];
  int i = find_param(params, setting->name);
  if (i < 0 && setting->span.source != e->values->family->source) return; /* of an included file's own model */
  if (i < 0) {
    diag_error(e->diag, setting->span, DIAG_CHECKPOINT, "model %s has no config value '%s'",
               e->values->family->model->name, setting->name);
    return;
  }
  json_t *value = expression_value(&e->facts, setting->children[0]);
  if (!value) return;
  if (json_is_null(value)) {
    value = missing_value(e, setting, params->children[i]);
    if (value) e->values->of_params[i] = value;
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
  if (!wanted || json_is_null(found)) return;
  const bool is_other_kind = json_is_integer(wanted) && json_is_real(found); /* 16.0 is no size */
  if (values_are_equal(found, wanted) && !is_other_kind) return;
  report(e, true,
         arena_printf(e->arena, "%s is %s; this family computes %s only", expression_keys(e->arena, entry->children[0]),
                      printed(e->arena, found), printed(e->arena, wanted)));
  diag_note(e->diag, entry->span, "the family expects it here");
}

static void evaluate_require(Evaluation *e, const Ast *entry) {
  e->facts.misfit = NULL;
  int truth = expression_truth(&e->facts, entry->children[0]);
  if (truth != 0) return;
  const char *keys = expression_keys(e->arena, entry->children[0]), *misfit = e->facts.misfit;
  const char *text = *keys ? arena_printf(e->arena, "%s (%s)", entry->text, keys) : entry->text;
  report(e, true, misfit ? arena_printf(e->arena, "%s: %s", entry->text, misfit) : text);
  diag_note(e->diag, entry->span, "the family requires it here");
}

/* Conditions that need no weights hold already: import_check has looked at them. */
static void evaluate_entry(Evaluation *e, const Ast *entry) {
  const bool is_checked = !expression_needs_weights(entry);
  if (entry->kind == AST_SETTING) evaluate_setting(e, entry);
  if (entry->kind == AST_SETTING) expression_add_keys(&e->read, entry->children[0]);
  if (entry->kind == AST_EXPECT && !is_checked) evaluate_expect(e, entry);
  if (entry->kind == AST_REQUIRE && !is_checked) evaluate_require(e, entry);
}

// ---- keys that are missing ----

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

// ---- before the weights are opened ----

static const char *listed(Arena *arena, const Texts *texts) {
  StrBuf out = strbuf_new(arena);
  for (size_t i = 0; i < texts->n; i++) strbuf_printf(&out, "%s%s", i ? ", " : "", texts->items[i]);
  return out.text;
}

/* The classes of the list, "BertModel, BertForMaskedLM"; `prefix`: the model's name. */
static const char *class_names(Arena *arena, const Texts *classes, const char *prefix) {
  StrBuf out = strbuf_new(arena);
  for (size_t i = 0; i < classes->n; i++)
    strbuf_printf(&out, "%s%s%s", i ? ", " : "", prefix, classes->items[i]);
  return out.text;
}

/* The parameter for modules of sentence transformers behind the body; NULL: there are none. */
static const char *module_param(const Evaluation *e) {
  return sentence_param(json_object_get(e->folder->names, "sentence"));
}

static bool has_text(const Texts *texts, const char *text) {
  for (size_t i = 0; i < texts->n; i++)
    if (strcmp(texts->items[i], text) == 0) return true;
  return false;
}

/* The classes of all families for the type: another file may compute what this one does not. */
static Texts classes_of_type(const Evaluation *e) {
  Map names = map_new(e->arena);
  Texts found = family_texts(e->arena, e->values->family, "classes");
  const char *type = json_string_value(json_object_get(e->folder->config, "model_type"));
  const bool is_embedded = e->values->family->is_embedded && type;
  const Families families = is_embedded ? families_embedded(e->arena, &names) : (Families){0};
  for (size_t i = 0; i < families.n; i++) {
    const Texts classes = family_texts(e->arena, families.items[i], "classes");
    for (size_t k = 0; family_is_for(families.items[i], type) && k < classes.n; k++)
      if (!has_text(&found, classes.items[k])) vec_push(e->arena, &found, classes.items[k]);
  }
  return found;
}

/* A class of the model's own type whose head is not computed may be taken without it, if the user says so by a task,
 * or where sentence transformers take the body alone; one of another name is of other code, and nothing here knows what
 * it computes. */
static void check_class(Evaluation *e) {
  const Texts classes = family_texts(e->arena, e->values->family, "classes");
  const char *class = json_string_value(json_array_get(json_object_get(e->folder->config, "architectures"), 0));
  const char *part = json_string_value(json_object_get(e->folder->names, "architecture"));
  const bool is_other_code = class && strcmp(class, part) == 0;
  const bool is_body = e->options->task || module_param(e); /* whose head is left out */
  if (!classes.n || !class || (is_body && !is_other_code)) return;
  if (e->folder->ignored && map_has(e->folder->ignored, "architectures")) return;
  if (has_text(&classes, part)) return;
  const Texts of_type = classes_of_type(e);
  const Texts tasks = family_tasks(e->arena, e->values->family);
  const char *prefix = is_other_code ? "..." : arena_strndup(e->arena, class, strlen(class) - strlen(part));
  const char *cure = is_other_code ? "--ignore architectures says that it computes the same"
                     : tasks.n     ? arena_printf(e->arena, "--task leaves its head out, with one of %s",
                                                  listed(e->arena, &tasks))
                                   : "In Python, tfmc.from_torch takes the module itself";
  report(e, true,
         arena_printf(e->arena, "\"architectures\": the class %s is not computed; computed: %s. %s", class,
                      class_names(e->arena, &of_type, prefix), cure));
}

static void check_task(Evaluation *e) {
  const Texts tasks = family_tasks(e->arena, e->values->family);
  if (!e->options->task) return;
  for (size_t i = 0; i < tasks.n; i++)
    if (strcmp(tasks.items[i], e->options->task) == 0) return;
  if (tasks.n)
    diag_error_at(e->diag, NULL, DIAG_USAGE, "--task: model %s has no task \"%s\"; there are %s",
                  e->values->family->model->name, e->options->task, listed(e->arena, &tasks));
  else
    diag_error_at(e->diag, NULL, DIAG_USAGE, "--task: model %s has one task only", e->values->family->model->name);
}

/* A folder that says how its texts become vectors must not become a model that gives something else. */
static void check_sentence(Evaluation *e) {
  const char *param = module_param(e);
  if (!param || e->options->task || family_param(e->values->family, param) >= 0) return;
  const char *place = arena_printf(e->arena, "%s/modules.json", e->folder->path);
  diag_error_at(e->diag, place, DIAG_CHECKPOINT,
                "the folder makes %s of a text, and model %s has no such output",
                strcmp(param, "sentence") == 0 ? "vectors"
                : strcmp(param, "splade") == 0 ? "numbers of words (SpladePooling)"
                                               : "a score",
                e->values->family->model->name);
}

/* transformers refuses such a config whatever its type. */
static void check_layer_types(Evaluation *e) {
  const json_t *types = json_object_get(e->folder->config, "layer_types");
  const json_t *depth = json_object_get(e->folder->config, "num_hidden_layers");
  if (!json_is_array(types) || !json_is_integer(depth)) return;
  if ((json_int_t)json_array_size(types) == json_integer_value(depth)) return;
  report(e, true,
         arena_printf(e->arena, "\"layer_types\" has %zu layers, and \"num_hidden_layers\" is %lld",
                      json_array_size(types), (long long)json_integer_value(depth)));
}

static Evaluation evaluation_new(Arena *arena, Diag *diag, const Folder *folder, const ImportOptions *options,
                                 ImportValues *values) {
  Evaluation e = {.arena = arena, .diag = diag, .folder = folder, .options = options, .values = values};
  e.read = map_new(arena);
  e.facts = (Facts){.arena = arena,
                    .diag = diag,
                    .names = folder->names,
                    .file = folder->config_path,
                    .weights = folder->weights,
                    .values = values->owned,
                    .copies = &values->copies};
  return e;
}

static ImportValues values_new(Arena *arena, const Family *family) {
  json_t **of_params = ARENA_ARRAY(arena, json_t *, family->model->children[0]->n_children);
  return (ImportValues){family, of_params, json_array(), "", map_new(arena)};
}

void import_note_family(Diag *diag, const Family *family) {
  if (!family->is_embedded || !diag_has_errors(diag)) return;
  diag_note(diag, family->checkpoint->span,
            "this is the family of the folder; --family FILE takes a changed copy of it, and in Python tfmc.from_torch "
            "takes the module itself");
}

bool import_check(Arena *arena, Diag *diag, const Family *family, const Folder *folder, const ImportOptions *options) {
  const Ast *block = family->checkpoint->children[1];
  ImportValues values = values_new(arena, family);
  Evaluation e = evaluation_new(arena, diag, folder, options, &values);
  const bool has_kinds = !family->is_embedded || key_types_check(arena, diag, folder);
  family_join_spellings(diag, family, folder);
  check_class(&e);
  check_task(&e);
  check_sentence(&e);
  check_layer_types(&e);
  for (uint32_t i = 0; has_kinds && i < block->n_children; i++) {
    const Ast *entry = block->children[i];
    if (expression_needs_weights(entry)) continue;
    if (entry->kind == AST_EXPECT) evaluate_expect(&e, entry);
    if (entry->kind == AST_REQUIRE) evaluate_require(&e, entry);
  }
  if (has_kinds) account_for_keys(arena, diag, family, folder);
  json_decref(values.owned);
  return !diag_has_errors(diag);
}

// ---- with the weights ----

/* The task of the command line wins over that of the block. */
static void set_task(Evaluation *e) {
  if (e->options->task) *e->values = import_with_task(e->arena, e->values, e->options->task);
}

/* Where no pad is said, transformers takes the end, or the first of several. A default that says `pad = eos` would be
 * a list here. */
static void set_pad(Evaluation *e) {
  const Ast *params = e->values->family->model->children[0];
  const int pad = family_param(e->values->family, "pad");
  const Ast *otherwise = pad < 0 || e->values->of_params[pad] ? NULL : params->children[pad]->children[1];
  const int from = otherwise && otherwise->kind == AST_NAME ? family_param(e->values->family, otherwise->name) : -1;
  if (from >= 0 && json_is_array(e->values->of_params[from]))
    e->values->of_params[pad] = json_array_get(e->values->of_params[from], 0);
}

/* A class with a head has as many rows in it as its labels have names, or as there are labels where they have none; for
 * transformers another number is a mistake. */
static void check_labels(Evaluation *e) {
  const int labels = family_param(e->values->family, "labels");
  const json_t *names = json_object_get(e->folder->config, "id2label");
  const json_t *number = json_object_get(e->folder->config, "num_labels");
  const char *part = json_string_value(json_object_get(e->folder->names, "architecture"));
  const json_t *rows = labels < 0 ? NULL : e->values->of_params[labels];
  const bool has_names = json_is_object(names);
  if ((!has_names && !json_is_integer(number)) || !json_is_integer(rows) || e->options->task) return;
  if (!part || (!strstr(part, "Classification") && !strstr(part, "XVector"))) return;
  const json_int_t said = has_names ? (json_int_t)json_object_size(names) : json_integer_value(number);
  if (said == json_integer_value(rows)) return;
  report(e, true,
         arena_printf(e->arena, "\"%s\" %s %lld%s, and the head has %lld", has_names ? "id2label" : "num_labels",
                      has_names ? "has" : "is", (long long)said, has_names ? " labels" : "",
                      (long long)json_integer_value(rows)));
}

bool import_evaluate(Arena *arena, Diag *diag, const Family *family, const Folder *folder, const ImportOptions *options,
                     ImportValues *values) {
  const Ast *block = family->checkpoint->children[1];
  *values = values_new(arena, family);
  Evaluation e = evaluation_new(arena, diag, folder, options, values);
  for (uint32_t i = 0; i < block->n_children; i++) evaluate_entry(&e, block->children[i]);
  set_task(&e);
  set_pad(&e);
  check_labels(&e);
  values->lacking = lacking_keys(&e);
  return !diag_has_errors(diag);
}

// ---- tasks ----

const char *import_task(const ImportValues *values) {
  const int i = family_param(values->family, "task");
  if (i < 0) return "";
  const Ast *otherwise = values->family->model->children[0]->children[i]->children[1];
  const char *text = json_string_value(values->of_params[i]);
  return text ? text : otherwise && otherwise->kind == AST_STRING ? otherwise->text : "";
}

ImportValues import_with_task(Arena *arena, const ImportValues *values, const char *task) {
  ImportValues other = *values;
  const int i = family_param(values->family, "task");
  const uint32_t n = values->family->model->children[0]->n_children;
  other.of_params = ARENA_ARRAY(arena, json_t *, n);
  for (uint32_t k = 0; k < n; k++) other.of_params[k] = values->of_params[k];
  if (i < 0) return other;
  other.of_params[i] = json_string(task);
  json_array_append_new(values->owned, other.of_params[i]);
  return other;
}

/* The family of a checkpoint, and what it makes of it: the values of its model's parameters, and the text with them.
 * See import.h.
 *
 * In: the entries of the block, config.json, the names of the weights. Out: a value for each parameter that one sets.
 * Refused, with the file, the key and the line that asks for it: values of another kind than the parameter's default,
 * conditions that do not hold, settings of parameters that the model does not have. A key that is missing leaves the
 * default, with a warning if the setting is that key alone (`first(key, otherwise)` says that it may be missing). Keys
 * of config.json that the block does not name are warnings, under --strict errors: a key that decides something must
 * not be overlooked.
 *
 * The family's text is edited, not printed anew, so comments and layout stay: values take the place of defaults, the
 * checkpoint block goes, and so does what the values decide against in the model. */
#include <string.h>

#include "import/expression.h"
#include "import/import.h"

#include <ctype.h>

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
  bool is_list = json_is_array(value) && json_array_size(value) > 0 && is_of_generation(model, param->name);
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
    bool is_known = map_has(&e->known, name);
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
  values->lacking = lacking_keys(&e);
  return !diag_has_errors(diag);
}

// ---- the text ----

typedef struct Writer {
  StrBuf *out;
  const Source *source;
  uint32_t at;    /* what stands before it is written */
  Facts *decided; /* the model's parameters that the checkpoint gives, as names */
} Writer;

static void copy_to(Writer *w, uint32_t end) {
  if (end > w->at) strbuf_add_n(w->out, w->source->text + w->at, end - w->at);
  if (end > w->at) w->at = end;
}

static void skip_blank_lines(Writer *w) {
  while (w->at < w->source->size && (w->source->text[w->at] == '\n' || w->source->text[w->at] == '\r')) w->at++;
}

// ---- what the checkpoint decides ----

/* A parameter that a name within the model hides is none of those that decide. */
static void remove_hidden(json_t *names, const Ast *node) {
  if (!node) return;
  bool names_one = node->kind == AST_FOR || node->kind == AST_COMPREHENSION || node->kind == AST_PARAM ||
                   node->kind == AST_MEMBER || node->kind == AST_FN;
  if (names_one && node->name) json_object_del(names, node->name);
  for (uint32_t i = 0; i < node->n_children; i++) {
    if (node->kind == AST_NAMES) json_object_del(names, node->children[i]->name);
    remove_hidden(names, node->children[i]);
  }
}

/* Whether an expression has nothing but decided names and constants. */
static bool is_decided(const json_t *names, const Ast *node) {
  static const AstKind plain[] = {AST_NUMBER, AST_STRING, AST_TRUE, AST_FALSE, AST_NONE, AST_COMPARE, AST_BINARY};
  bool is_plain = node->kind == AST_NAME && json_object_get(names, node->name);
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) is_plain = is_plain || node->kind == plain[i];
  for (uint32_t i = 0; is_plain && i < node->n_children; i++) is_plain = is_decided(names, node->children[i]);
  return is_plain;
}

/* 1, 0, or -1: the checkpoint does not decide it. One side may decide an `and` or an `or` alone. */
static int decided_truth(Facts *facts, const Ast *node) {
  if (node->kind == AST_NOT) {
    int truth = decided_truth(facts, node->children[0]);
    return truth < 0 ? -1 : !truth;
  }
  if (node->kind != AST_AND && node->kind != AST_OR)
    return is_decided(facts->names, node) ? expression_truth(facts, node) : -1;
  int left = decided_truth(facts, node->children[0]), right = decided_truth(facts, node->children[1]);
  int decisive = node->kind == AST_OR;
  if (left == decisive || right == decisive) return decisive;
  return left < 0 || right < 0 ? -1 : !decisive;
}

static bool write_tree(Writer *w, const Ast *node);

static void write_choice(Writer *w, const Ast *choice, const Ast *chosen) {
  bool is_one = chosen->flag || chosen->kind == AST_NAME || chosen->kind == AST_CALL || chosen->kind == AST_NUMBER;
  bool in_brackets = choice->flag && !is_one;
  copy_to(w, choice->span.begin);
  if (in_brackets) strbuf_add_char(w->out, '(');
  w->at = chosen->span.begin;
  write_tree(w, chosen);
  copy_to(w, chosen->span.end);
  if (in_brackets) strbuf_add_char(w->out, ')');
  w->at = choice->span.end;
}

/* Where the line of a place begins, if nothing but spaces stands before it; else the place itself. */
static uint32_t line_of(const Source *source, uint32_t place) {
  uint32_t begin = place;
  while (begin > 0 && source->text[begin - 1] == ' ') begin--;
  return begin > 0 && source->text[begin - 1] == '\n' ? begin : place;
}

/* The lines of a block two columns to the left, in the place of the `if`. */
static void write_lines(Writer *w, const Ast *branch, const char *text, size_t length) {
  while (length && strchr(" \n", text[length - 1])) length--;
  while (length && *text == ' ') text++, length--;
  bool has_lines = length && *text == '\n';
  copy_to(w, has_lines ? line_of(w->source, branch->span.begin) : branch->span.begin);
  for (size_t i = has_lines; i < length; i++) {
    bool at_line = has_lines && text[i - 1] == '\n';
    if (at_line && strncmp(text + i, "  ", 2) == 0) i += 2;
    strbuf_add_char(w->out, text[i]);
  }
}

static void leave_out(Writer *w, const Ast *branch) {
  uint32_t line = line_of(w->source, branch->span.begin), end = branch->span.end;
  copy_to(w, line);
  while (line < branch->span.begin && end < w->source->size && w->source->text[end] != '\n') end++;
  w->at = end + (line < branch->span.begin && end < w->source->size);
}

/* The branch that is taken in the place of an `if`. True if it ends in a return, behind which nothing is read. */
static bool write_branch(Writer *w, const Ast *branch) {
  const Ast *taken = branch;
  int truth = -1;
  while (taken && taken->kind == AST_IF && (truth = decided_truth(w->decided, taken->children[0])) >= 0)
    taken = taken->children[truth ? 1 : 2];
  if (!taken || !(taken->kind == AST_IF || taken->n_children)) {
    leave_out(w, branch);
    return false;
  }
  if (taken->kind == AST_IF) { /* undecided: it becomes the first one */
    copy_to(w, branch->span.begin);
    w->at = taken->span.begin;
    for (uint32_t i = 0; i < taken->n_children; i++) write_tree(w, taken->children[i]);
    copy_to(w, branch->span.end);
    return false;
  }
  StrBuf text = strbuf_new(w->out->arena);
  Writer inner = {&text, w->source, taken->span.begin + 1, w->decided};
  bool ends = write_tree(&inner, taken);
  copy_to(&inner, taken->span.end - 1);
  write_lines(w, branch, text.text, text.length);
  w->at = branch->span.end;
  return ends;
}

/* A block up to its first return that is not under a condition. */
static bool write_block(Writer *w, const Ast *block) {
  for (uint32_t i = 0; i < block->n_children; i++) {
    if (!write_tree(w, block->children[i])) continue;
    if (i + 1 == block->n_children) return true;
    copy_to(w, block->children[i]->span.end);
    uint32_t end = block->span.end - 1;
    while (end > w->at && strchr(" \n", w->source->text[end - 1])) end--;
    w->at = end;
    return true;
  }
  return false;
}

/* Writes what stands before and in a node, without what the checkpoint decides against. True: it returns. */
static bool write_tree(Writer *w, const Ast *node) {
  if (!node) return false;
  if (node->kind == AST_BLOCK) return write_block(w, node);
  int truth = node->kind == AST_IF || node->kind == AST_CHOICE ? decided_truth(w->decided, node->children[0]) : -1;
  if (truth >= 0 && node->kind == AST_IF) return write_branch(w, node);
  if (truth >= 0) write_choice(w, node, node->children[truth ? 1 : 2]);
  for (uint32_t i = 0; truth < 0 && i < node->n_children; i++) write_tree(w, node->children[i]);
  return node->kind == AST_RETURN;
}

/* The members of the model, as the checkpoint decides them. */
static void write_members(Writer *w, const ImportValues *values) {
  const Ast *model = values->family->model, *params = model->children[0];
  Diag unheard = diag_new(w->out->arena); /* what cannot be evaluated is not decided */
  json_t *names = json_object();
  Facts facts = {.arena = w->out->arena, .diag = &unheard, .names = names, .file = "", .values = values->owned};
  for (uint32_t i = 0; i < params->n_children; i++)
    if (values->of_params[i]) json_object_set(names, params->children[i]->name, values->of_params[i]);
  remove_hidden(names, model->children[1]);
  w->decided = &facts;
  write_tree(w, model->children[1]);
  json_decref(names);
}

// ---- its parameters ----

static bool has_word(const char *text, const char *word) {
  size_t length = strlen(word);
  for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
    bool begins = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
    if (begins && !(isalnum((unsigned char)at[length]) || at[length] == '_')) return true;
  }
  return false;
}

/* Whether a parameter still means anything: in what follows, or in another one's default. */
static bool is_needed(const Writer *w, const ImportValues *values, uint32_t i, const char *members) {
  const Ast *params = values->family->model->children[0];
  const char *name = params->children[i]->name;
  bool needed = has_word(members, name);
  for (uint32_t k = i + 1; !needed && k < params->n_children; k++) {
    const Ast *otherwise = params->children[k]->children[1];
    if (values->of_params[k] || !otherwise) continue;
    int length = (int)(otherwise->span.end - otherwise->span.begin);
    needed = has_word(arena_printf(w->out->arena, "%.*s", length, w->source->text + otherwise->span.begin), name);
  }
  return needed;
}

/* ` = 12` behind a parameter without a default, or 12 in the place of one. What nothing reads any more is left out. */
static void write_params(Writer *w, const ImportValues *values, const char *members) {
  const Ast *params = values->family->model->children[0];
  for (uint32_t i = 0; i < params->n_children; i++) {
    const Ast *param = params->children[i], *otherwise = param->children[1];
    if (!is_needed(w, values, i, members)) {
      copy_to(w, param->span.begin);
      if (i + 1 < params->n_children) {
        w->at = params->children[i + 1]->span.begin;
        continue;
      }
      while (w->out->length && strchr(", \n", w->out->text[w->out->length - 1])) w->out->text[--w->out->length] = 0;
      w->at = otherwise ? otherwise->span.end : param->span.end;
      continue;
    }
    if (!values->of_params[i]) continue;
    copy_to(w, otherwise ? otherwise->span.begin : param->span.end);
    if (!otherwise) strbuf_add(w->out, " = ");
    value_print(w->out, values->of_params[i]);
    if (otherwise) w->at = otherwise->span.end;
  }
}

static void write_head(StrBuf *out, const Folder *folder, const ImportOptions *options) {
  const char *class = json_string_value(json_array_get(json_object_get(folder->config, "architectures"), 0));
  StrBuf quoted = strbuf_new(out->arena);
  strbuf_add_quoted(&quoted, folder->path);
  strbuf_printf(out, "# Imported from %s", quoted.text);
  if (class) strbuf_add(out, " (");
  if (class) {
    StrBuf name = strbuf_new(out->arena);
    strbuf_add_quoted(&name, class);
    strbuf_printf(out, "%.*s)", (int)name.length - 2, name.text + 1);
  }
  strbuf_printf(out, " by tfmc %s. To go on:\n#   tfmc compile THIS_FILE --weights %s -o libmodel.so\n#\n",
                options->version, quoted.text);
}

void import_write(StrBuf *out, const ImportValues *values, const Folder *folder, const ImportOptions *options) {
  const Ast *block = values->family->checkpoint;
  uint32_t body = values->family->model->children[1]->span.begin;
  StrBuf members = strbuf_new(out->arena);
  Writer w = {.out = out, .source = values->family->source}, after = {&members, w.source, body, NULL};
  write_members(&after, values);
  copy_to(&after, w.source->size);
  write_head(out, folder, options);
  copy_to(&w, block->span.begin);
  w.at = block->span.end;
  skip_blank_lines(&w);
  write_params(&w, values, members.text);
  copy_to(&w, body);
  strbuf_add(out, members.text);
}

/* The family of a checkpoint. See family.h. */
#include "import/family.h"

#include <string.h>

#include "import/expression.h"
#include "import/sentence.h"
#include "import/text_part.h"

typedef struct Embedded {
  const char *name, *text;
  const unsigned *size;
  bool is_part; /* of families alone, which include it */
} Embedded;

#define FAMILY(name)                 \
  extern const char family_##name[]; \
  extern const unsigned family_##name##_size;
#define PART(name) FAMILY(name)
#include "import/families.def"

static const Embedded embedded[] = {
#define FAMILY(name) {"models/" #name ".tfm", family_##name, &family_##name##_size, false},
#define PART(name) {"models/parts/" #name ".tfm", family_##name, &family_##name##_size, true},
#include "import/families.def"
};

enum { N_EMBEDDED = sizeof embedded / sizeof *embedded };

// ---- one file ----

static const char *const lists[] = {"classes", "unused", "spellings", "needed"};

static void check_lists(Diag *diag, const Family *family) {
  const Ast *block = family->checkpoint->children[1];
  for (uint32_t i = 0; i < block->n_children; i++) {
    const Ast *entry = block->children[i];
    bool is_known = entry->kind != AST_LISTING;
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
      is_known = is_known || strcmp(entry->name, lists[k]) == 0;
    if (!is_known)
      diag_error(diag, entry->span, DIAG_CHECKPOINT,
                 "a checkpoint block has no list \"%s\"; it has ignore, classes, unused, spellings and needed",
                 entry->name);
  }
}

/* Whether the family's own block decides about what an entry of an included one is for: it sets the same parameter,
 * names the key of an `expect`, or has a list of that name. */
static bool is_replaced(const Ast *block, const Map *keys, const Ast *entry) {
  for (uint32_t i = 0; i < block->n_children; i++) {
    const Ast *own = block->children[i];
    const bool has_name = own->kind == entry->kind && (own->kind == AST_SETTING || own->kind == AST_LISTING);
    if (has_name && strcmp(own->name, entry->name) == 0) return true;
  }
  if (entry->kind != AST_EXPECT) return false;
  Map names = map_new(keys->arena);
  expression_add_keys(&names, entry->children[0]);
  return names.n && map_has(keys, names.items[0].key);
}

/* The checkpoint block of the family, with the entries of included ones before its own. */
static const Ast *joined_block(Arena *arena, const ParsedProgram *program, const Ast *checkpoint) {
  const Ast *own = checkpoint->children[1];
  VEC(Ast *) entries = {0};
  Map keys = map_new(arena);
  for (uint32_t i = 0; i < own->n_children; i++)
    if (own->children[i]->kind == AST_SETTING || own->children[i]->kind == AST_EXPECT)
      expression_add_keys(&keys, own->children[i]);
  for (size_t i = 0; i < program->files.n; i++) {
    const ParsedFile *file = &program->files.items[i];
    for (uint32_t k = 0; k < file->ast->n_children; k++) {
      const Ast *node = file->ast->children[k], *block = node->kind == AST_CHECKPOINT ? node->children[1] : NULL;
      for (uint32_t n = 0; block && n < block->n_children; n++)
        if (file->is_main || !is_replaced(own, &keys, block->children[n]))
          vec_push(arena, &entries, block->children[n]);
    }
  }
  Ast *block = ARENA_NEW(arena, Ast), *joined = ARENA_NEW(arena, Ast);
  *block = *own;
  block->children = entries.items;
  block->n_children = (uint32_t)entries.n;
  *joined = *checkpoint;
  joined->children = ARENA_ARRAY(arena, Ast *, 2);
  joined->children[0] = checkpoint->children[0];
  joined->children[1] = block;
  return joined;
}

/* All layers and functions of the program as one file. */
static const Ast *joined_file(Arena *arena, const ParsedProgram *program) {
  VEC(Ast *) nodes = {0};
  for (size_t i = 0; i < program->files.n; i++)
    for (uint32_t k = 0; k < program->files.items[i].ast->n_children; k++)
      vec_push(arena, &nodes, program->files.items[i].ast->children[k]);
  Ast *file = ARENA_NEW(arena, Ast);
  *file = *program->files.items[program->files.n - 1].ast;
  file->children = nodes.items;
  file->n_children = (uint32_t)nodes.n;
  return file;
}

/* NULL after an error: a fault in the text, no block, not one model, or parameters that nothing reads. */
static Family *family_of(Arena *arena, Diag *diag, const ParsedProgram *program) {
  Family *family = ARENA_NEW(arena, Family);
  unsigned n_models = 0, n_blocks = 0;
  if (!program) return NULL;
  const ParsedFile *main_file = &program->files.items[program->files.n - 1];
  family->program = program;
  family->source = main_file->source;
  for (uint32_t k = 0; k < main_file->ast->n_children; k++) {
    const Ast *node = main_file->ast->children[k];
    if (node->kind == AST_CHECKPOINT) n_blocks++, family->checkpoint = node;
    if (node->kind == AST_LAYER && node->flag) n_models++, family->model = node;
  }
  if (n_models != 1 || n_blocks != 1) {
    diag_error_at(diag, family->source->path, DIAG_CHECKPOINT,
                  "a family is a file with one model and one checkpoint block; this one has %u models and %u blocks",
                  n_models, n_blocks);
    return NULL;
  }
  const int before = diag->n_errors;
  family->checkpoint = joined_block(arena, program, family->checkpoint);
  check_lists(diag, family);
  unread_params_check(arena, diag, family, joined_file(arena, program));
  return diag->n_errors == before ? family : NULL;
}

// ---- those of models/ ----

/* Included files before the one that includes them, each once. They lie beside it, and their texts are part of the
 * program, so that nothing of them can be missing. */
static void parse_embedded(Arena *arena, Map *names, Diag *diag, ParsedProgram *program, const char *file,
                           bool is_main) {
  for (size_t i = 0; i < program->files.n; i++)
    if (strcmp(program->files.items[i].source->path, file) == 0) return;
  for (int i = 0; i < N_EMBEDDED; i++) {
    const Embedded *e = &embedded[i];
    if (strcmp(e->name, file) != 0) continue;
    const NamedText text = {e->name, e->text, *e->size, is_main};
    const ParsedProgram *one = parse_texts(arena, names, diag, &text, 1);
    const Ast *ast = one ? one->files.items[0].ast : NULL;
    for (uint32_t k = 0; ast && k < ast->n_children; k++)
      if (ast->children[k]->kind == AST_INCLUDE)
        parse_embedded(arena, names, diag, program, arena_printf(arena, "models/%s", ast->children[k]->name), false);
    if (ast) vec_push(arena, &program->files, one->files.items[0]);
  }
}

static Family *embedded_family(Arena *arena, Map *names, Diag *diag, const Embedded *e) {
  ParsedProgram *program = ARENA_NEW(arena, ParsedProgram);
  const int before = diag->n_errors;
  parse_embedded(arena, names, diag, program, e->name, true);
  Family *family = diag->n_errors == before ? family_of(arena, diag, program) : NULL;
  if (family) family->is_embedded = true;
  return family;
}

bool family_is_for(const Family *family, const char *type) {
  const Ast *types = family->checkpoint->children[0];
  for (uint32_t i = 0; i < types->n_children; i++)
    if (strcmp(types->children[i]->text, type) == 0) return true;
  return false;
}

/* Nothing like it is proposed: a program wrote the type, so what is near it is another architecture (clap and clip). */
static void report_unknown(Arena *arena, Map *names, Diag *diag, const char *type, const Folder *folder) {
  Map types = map_new(arena);
  for (int i = 0; i < N_EMBEDDED; i++) {
    if (embedded[i].is_part) continue;
    const Family *family = embedded_family(arena, names, diag, &embedded[i]);
    const Ast *of_family = family ? family->checkpoint->children[0] : NULL;
    for (uint32_t k = 0; family && k < of_family->n_children; k++) map_put(&types, of_family->children[k]->text, NULL);
  }
  const char *part = has_text_part(folder->config)
                         ? "; it reads more than text, and its part for text (text_config) is not taken out of it"
                         : "";
  diag_error_at(diag, folder->config_path, DIAG_CHECKPOINT,
                "\"model_type\": no family is for \"%s\"%s; `tfmc import --list` shows the %zu types that have one. In "
                "Python, tfmc.from_torch takes the module itself; --family FILE takes a family of one's own",
                type, part, types.n);
}

static bool computes(Arena *arena, const Family *family, const char *class) {
  const Texts classes = family_texts(arena, family, "classes");
  for (size_t i = 0; class && i < classes.n; i++)
    if (strcmp(classes.items[i], class) == 0) return true;
  return false;
}

/* Whether a file can be for the type, which its block would have in quotes: to parse all files takes longer than the
 * rest of an import. */
static bool mentions(const Embedded *e, const char *quoted) { return !e->is_part && strstr(e->text, quoted); }

/* One of models/ for the type: the one that computes the class, else the first. NULL: there is none, or an error.
 * `param`: among those with this parameter; NULL: among all. */
static Family *embedded_for(Arena *arena, Map *names, Diag *diag, const Folder *folder, const char *param) {
  const char *type = json_string_value(json_object_get(folder->config, "model_type"));
  const char *class = json_string_value(json_object_get(folder->names, "architecture"));
  const char *quoted = arena_printf(arena, "\"%s\"", type);
  Family *first = NULL;
  for (int i = 0; i < N_EMBEDDED; i++) {
    if (!mentions(&embedded[i], quoted)) continue;
    Family *family = embedded_family(arena, names, diag, &embedded[i]);
    if (!family) return NULL;
    if (!family_is_for(family, type) || (param && family_param(family, param) < 0)) continue;
    if (!first) first = family;
    if (computes(arena, family, class)) return family;
  }
  return first;
}

Family *family_choose(Arena *arena, Map *names, Diag *diag, const Folder *folder, const char *path) {
  const char *type = json_string_value(json_object_get(folder->config, "model_type"));
  const char *param = sentence_param(json_object_get(folder->names, "sentence"));
  if (path) return family_of(arena, diag, parse_program(arena, names, diag, path));
  if (!type) {
    diag_error_at(
        diag, folder->config_path, DIAG_CHECKPOINT,
        "\"model_type\" is missing or no string; it says which family the model is of; --family FILE names one");
    return NULL;
  }
  Family *family = param ? embedded_for(arena, names, diag, folder, param) : NULL;
  if (!family) family = embedded_for(arena, names, diag, folder, NULL);
  if (!family && !diag_has_errors(diag)) report_unknown(arena, names, diag, type, folder);
  return family;
}

Families families_embedded(Arena *arena, Map *names) {
  Families families = {0};
  Diag unheard = diag_new(arena);
  for (int i = 0; i < N_EMBEDDED; i++) {
    Family *family = embedded[i].is_part ? NULL : embedded_family(arena, names, &unheard, &embedded[i]);
    if (family) vec_push(arena, &families, family);
  }
  return families;
}

// ---- what a block and a model say ----

Texts family_texts(Arena *arena, const Family *family, const char *list) {
  const Ast *block = family->checkpoint->children[1];
  Texts texts = {0};
  for (uint32_t i = 0; i < block->n_children; i++) {
    const Ast *entry = block->children[i];
    if (entry->kind != AST_LISTING || strcmp(entry->name, list) != 0) continue;
    for (uint32_t k = 0; k < entry->n_children; k++) vec_push(arena, &texts, entry->children[k]->text);
  }
  return texts;
}

static void join_spelling(Diag *diag, const Folder *folder, const char *key, const char *other) {
  json_t *value = json_object_get(folder->config, other), *there = json_object_get(folder->config, key);
  if (!value) return;
  if (json_is_null(value)) {
    diag_error_at(diag, folder->config_path, DIAG_CHECKPOINT,
                  "\"%s\" is null, and is another spelling of \"%s\": take it out", other, key);
    return;
  }
  if (there && !json_is_null(there) && !values_are_equal(there, value)) {
    diag_error_at(diag, folder->config_path, DIAG_CHECKPOINT,
                  "\"%s\" and \"%s\" are two spellings of one setting, and they contradict each other: take one out",
                  other, key);
    return;
  }
  json_object_set(folder->config, key, value);
  json_object_set(folder->names, key, value);
  json_object_del(folder->config, other);
  json_object_del(folder->names, other);
}

void family_join_spellings(Diag *diag, const Family *family, const Folder *folder) {
  const Ast *block = family->checkpoint->children[1];
  for (uint32_t i = 0; i < block->n_children; i++) {
    const Ast *entry = block->children[i];
    if (entry->kind != AST_LISTING || strcmp(entry->name, "spellings") != 0) continue;
    for (uint32_t k = 1; k < entry->n_children; k++)
      join_spelling(diag, folder, entry->children[0]->text, entry->children[k]->text);
  }
}

int family_param(const Family *family, const char *name) {
  const Ast *params = family->model->children[0];
  for (uint32_t i = 0; i < params->n_children; i++)
    if (strcmp(params->children[i]->name, name) == 0) return (int)i;
  return -1;
}

bool family_writes(const Family *family) {
  const Ast *members = family->model->children[1];
  for (uint32_t i = 0; i < members->n_children; i++)
    if (members->children[i]->kind == AST_GENERATE) return true;
  return false;
}

static void add_task(Arena *arena, Texts *tasks, const Ast *node) {
  if (node->kind != AST_STRING) return;
  for (size_t i = 0; i < tasks->n; i++)
    if (strcmp(tasks->items[i], node->text) == 0) return;
  vec_push(arena, tasks, node->text);
}

/* What `task` is compared with, or may be an element of. */
static void add_tasks(Arena *arena, Texts *tasks, const Ast *node) {
  if (!node) return;
  for (uint32_t i = 0; i < node->n_children; i++) add_tasks(arena, tasks, node->children[i]);
  if (node->kind != AST_COMPARE || node->n_children != 2) return;
  const Ast *left = node->children[0], *right = node->children[1];
  if (left->kind != AST_NAME || strcmp(left->name, "task") != 0) return;
  add_task(arena, tasks, right);
  const uint32_t n = right->kind == AST_LIST ? right->n_children : 0;
  for (uint32_t i = 0; i < n; i++) add_task(arena, tasks, right->children[i]);
}

Texts family_tasks(Arena *arena, const Family *family) {
  Texts tasks = {0};
  if (family_param(family, "task") < 0) return tasks;
  const Ast *otherwise = family->model->children[0]->children[family_param(family, "task")]->children[1];
  if (otherwise && otherwise->kind == AST_STRING) vec_push(arena, &tasks, otherwise->text);
  add_tasks(arena, &tasks, family->model->children[1]);
  return tasks;
}

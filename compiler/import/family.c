/* Finds the family of a checkpoint. See family.h. */
#include "import/family.h"

#include <string.h>

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

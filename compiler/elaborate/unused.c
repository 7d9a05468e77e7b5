/* Unused: what a layer defines and no text mentions: not the layer itself, not `m.name` anywhere, not the text of a
 * `require`. Whether a branch is taken plays no part, so what other config values need gives no warning. */
#include "elaborate/unused.h"

#include <string.h>

typedef struct Mentions {
  Map dots; /* names after a dot, in any file */
  Map names; /* names in the layer */
} Mentions;

static bool is_member(const Ast *node) { return node->kind == AST_MEMBER || node->kind == AST_WEIGHT; }

/* Names in the text of `require`. */
static void read_placeholders(Map *names, const char *text) {
  for (const char *open = strchr(text, '{'); open; open = strchr(open + 1, '{')) {
    size_t n = strcspn(open + 1, "}");
    map_put_n(names, open + 1, n, NULL);
  }
}

static void read_mentions(Elaborator *e, const Ast *root, Map *names, Map *dots) {
  VEC(const Ast *) waiting = {0};
  vec_push(e->arena, &waiting, root);
  while (waiting.n) {
    const Ast *node = waiting.items[--waiting.n];
    if (node->kind == AST_NAME && names) map_put(names, node->name, NULL);
    if (node->kind == AST_DOT && dots) map_put(dots, node->name, NULL);
    if (node->kind == AST_REQUIRE && names) read_placeholders(names, node->text);
    for (uint32_t i = 0; i < node->n_children; i++) {
      if (node->children[i]) vec_push(e->arena, &waiting, node->children[i]);
    }
  }
}

enum { MAX_WARNINGS = 20 };

static void warn_in_layer(Elaborator *e, const Ast *layer, const Map *dots, uint32_t *n) {
  Map names = map_new(e->arena);
  VEC(const Ast *) waiting = {0};
  read_mentions(e, layer, &names, NULL);
  vec_push(e->arena, &waiting, layer->children[1]);
  while (waiting.n) {
    const Ast *node = waiting.items[--waiting.n];
    for (uint32_t i = node->n_children; i-- > 0;) {
      const Ast *child = node->children[i];
      if (child && (child->kind == AST_IF || child->kind == AST_BLOCK || is_member(child))) {
        vec_push(e->arena, &waiting, child);
      }
    }
    if (!is_member(node) || map_has(&names, node->name) || map_has(dots, node->name)) continue;
    if (node->text && map_has(dots, node->text)) continue;
    if (++*n > MAX_WARNINGS) return;
    diag_warning(e->diag, node->span, DIAG_UNUSED, "%s '%s' of %s is not used",
                 node->kind == AST_WEIGHT ? "weight" : "member", node->name, layer->name);
  }
}

void warn_unused(Elaborator *e, const ParsedProgram *program) {
  Map dots = map_new(e->arena);
  uint32_t n = 0;
  for (size_t i = 0; i < program->files.n; i++) read_mentions(e, program->files.items[i].ast, NULL, &dots);
  for (size_t i = 0; i < program->files.n; i++) {
    const Ast *file = program->files.items[i].ast;
    for (uint32_t k = 0; k < file->n_children; k++) {
      if (file->children[k]->kind == AST_LAYER) warn_in_layer(e, file->children[k], &dots, &n);
    }
  }
}

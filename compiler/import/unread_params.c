/* Parameters of a family that nothing reads. See family.h.
 *
 * A checkpoint's value that reaches no computation is a wrong model without a word, so it is an error of the family. A
 * name is read where it stands in a condition, a shape, a path, a function or the forward; in the value of a member
 * that is read itself; in the default of a parameter that is; and in an argument of a layer of the file whose parameter
 * is. So a value that is handed on and dropped at the end counts as unread all the way. Whether a branch is taken plays
 * no part. What is read grows until nothing is added. */
#include <string.h>

#include "import/family.h"

typedef struct Reading {
  Arena *arena;
  const Ast *file, *layer; /* the layer that is walked */
  Map read;                /* "Layer.name" */
  Map dots;                /* names after a dot, in the file: members that are reached from outside */
  StrBuf key;
} Reading;

/* Until the next one: maps copy their keys. Nothing is formatted, since this is asked for every name of a file again
 * and again. */
static const char *key_of(Reading *r, const Ast *layer, const char *name) {
  r->key.length = 0;
  strbuf_add(&r->key, layer->name);
  strbuf_add_char(&r->key, '.');
  strbuf_add(&r->key, name);
  return r->key.text;
}

static bool is_read(Reading *r, const Ast *layer, const char *name) {
  return map_has(&r->read, key_of(r, layer, name));
}

static const Ast *layer_named(const Reading *r, const char *name) {
  for (uint32_t i = 0; i < r->file->n_children; i++) {
    const Ast *node = r->file->children[i];
    if (node->kind == AST_LAYER && strcmp(node->name, name) == 0) return node;
  }
  return NULL;
}

/* `{prefix}` in the path of a member or a weight. */
static void read_path(Reading *r, const char *path) {
  for (const char *open = strchr(path, '{'); open; open = strchr(open + 1, '{')) {
    const char *name = arena_strndup(r->arena, open + 1, strcspn(open + 1, "}"));
    map_put(&r->read, key_of(r, r->layer, name), NULL);
  }
}

static void walk(Reading *r, const Ast *node);

/* The parameter that an argument is for; NULL: there is none. */
static const Ast *param_of(const Ast *layer, const Ast *argument, uint32_t place) {
  const Ast *params = layer->children[0];
  if (!argument->name) return place < params->n_children ? params->children[place] : NULL;
  for (uint32_t i = 0; i < params->n_children; i++)
    if (strcmp(params->children[i]->name, argument->name) == 0) return params->children[i];
  return NULL;
}

static void walk_call(Reading *r, const Ast *call) {
  const Ast *callee = call->children[0], *layer = callee->kind == AST_NAME ? layer_named(r, callee->name) : NULL;
  walk(r, callee);
  for (uint32_t i = 1; i < call->n_children; i++) {
    const Ast *param = layer ? param_of(layer, call->children[i], i - 1) : NULL;
    if (!param || is_read(r, layer, param->name)) walk(r, call->children[i]);
  }
}

/* What stands behind an arrow gets one more argument in front, so nothing is known of its places. */
static void walk_target(Reading *r, const Ast *target) {
  if (target->kind != AST_CALL || target->flag) {
    walk(r, target);
    return;
  }
  for (uint32_t i = 0; i < target->n_children; i++) walk(r, target->children[i]);
}

static void walk(Reading *r, const Ast *node) {
  if (!node) return;
  if (node->kind == AST_NAME) map_put(&r->read, key_of(r, r->layer, node->name), NULL);
  bool has_path = node->kind == AST_MEMBER || node->kind == AST_WEIGHT || node->kind == AST_PLACED;
  if (has_path && node->text) read_path(r, node->text);
  if (node->kind == AST_CALL) {
    walk_call(r, node);
    return;
  }
  if (node->kind == AST_PIPE) {
    walk(r, node->children[0]);
    walk_target(r, node->children[1]);
    return;
  }
  if (node->kind == AST_MEMBER && !is_read(r, r->layer, node->name) && !map_has(&r->dots, node->name)) return;
  for (uint32_t i = 0; i < node->n_children; i++) walk(r, node->children[i]);
}

static void walk_layer(Reading *r, const Ast *layer) {
  r->layer = layer;
  walk(r, layer->children[1]);
  const Ast *params = layer->children[0];
  for (uint32_t i = 0; i < params->n_children; i++)
    if (is_read(r, layer, params->children[i]->name)) walk(r, params->children[i]->children[1]);
}

static void collect_dots(Map *dots, const Ast *node) {
  if (!node || node->kind == AST_CHECKPOINT) return;
  if (node->kind == AST_DOT) map_put(dots, node->name, NULL);
  for (uint32_t i = 0; i < node->n_children; i++) collect_dots(dots, node->children[i]);
}

static const Ast *setting_of(const Family *family, const char *name) {
  const Ast *block = family->checkpoint->children[1];
  for (uint32_t i = 0; i < block->n_children; i++)
    if (block->children[i]->kind == AST_SETTING && strcmp(block->children[i]->name, name) == 0)
      return block->children[i];
  return NULL;
}

void unread_params_check(Arena *arena, Diag *diag, const Family *family, const Ast *file) {
  Reading r = {.arena = arena, .file = file, .read = map_new(arena), .dots = map_new(arena),
               .key = strbuf_new(arena)};
  collect_dots(&r.dots, file);
  for (size_t before = SIZE_MAX; before != r.read.n;) {
    before = r.read.n;
    for (uint32_t i = 0; i < file->n_children; i++)
      if (file->children[i]->kind == AST_LAYER) walk_layer(&r, file->children[i]);
  }
  for (uint32_t i = 0; i < file->n_children; i++) {
    const Ast *layer = file->children[i];
    for (uint32_t k = 0; layer->kind == AST_LAYER && k < layer->children[0]->n_children; k++) {
      const Ast *param = layer->children[0]->children[k];
      if (is_read(&r, layer, param->name)) continue;
      const Ast *setting = layer == family->model ? setting_of(family, param->name) : NULL;
      diag_error(diag, param->span, DIAG_CHECKPOINT, "nothing reads '%s' of %s: what a checkpoint says of it is lost",
                 param->name, layer->name);
      if (setting) diag_note(diag, setting->span, "the checkpoint block sets it here");
    }
  }
}

/* What expressions of a `checkpoint` block name, and what all that evaluates them needs. See expression.h.
 *
 * In: an expression. Out: the keys that it names, whether it needs weights; faults at its place. Refuses nothing. */
#include <string.h>

#include "import/expression.h"

json_t *facts_keep(Facts *f, json_t *value) {
  json_array_append_new(f->values, value);
  return value;
}

json_t *facts_fault(Facts *f, const Ast *node, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(f->arena, format, args);
  va_end(args);
  diag_error(f->diag, node->span, DIAG_CHECKPOINT, "%s", text);
  return NULL;
}

bool values_are_equal(const json_t *a, const json_t *b) {
  if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
  return json_equal(a, b);
}

/* The path of a chain of names, "a.b"; NULL if the node is none. */
static const char *path_of(Arena *arena, const Ast *node) {
  if (node->kind == AST_NAME) return node->name;
  if (node->kind != AST_DOT) return NULL;
  const char *before = path_of(arena, node->children[0]);
  return before ? arena_printf(arena, "%s.%s", before, node->name) : NULL;
}

static void add_keys(Arena *arena, StrBuf *out, const Ast *node) {
  const char *path = path_of(arena, node);
  if (path) {
    const char *quoted = arena_printf(arena, "\"%s\"", path);
    if (!strstr(out->text, quoted)) strbuf_printf(out, "%s%s", out->length ? ", " : "", quoted);
    return;
  }
  for (uint32_t i = node->kind == AST_CALL; i < node->n_children; i++)
    if (node->children[i]) add_keys(arena, out, node->children[i]);
}

const char *expression_keys(Arena *arena, const Ast *node) {
  StrBuf out = strbuf_new(arena);
  add_keys(arena, &out, node);
  return out.text;
}

const Ast *call_argument(const Ast *call, uint32_t i) { return call->children[i + 1]->children[0]; }

/* The object whose members of_layers accounts for; NULL. */
static const char *object_of_layers(Arena *arena, const Ast *node) {
  const Ast *callee = node->kind == AST_CALL ? node->children[0] : NULL;
  const bool is_call = callee && callee->kind == AST_NAME && strcmp(callee->name, "of_layers") == 0;
  return is_call && node->n_children > 1 ? path_of(arena, call_argument(node, 0)) : NULL;
}

void expression_add_keys(Map *keys, const Ast *node) {
  const char *layers = object_of_layers(keys->arena, node);
  if (layers) map_put(keys, arena_printf(keys->arena, "%s.*", layers), NULL);
  const char *path = path_of(keys->arena, node);
  if (path) map_put(keys, path, NULL);
  for (uint32_t i = node->kind == AST_CALL; i < node->n_children; i++)
    if (node->children[i]) expression_add_keys(keys, node->children[i]);
}

bool expression_needs_weights(const Ast *node) {
  static const char *const of_weights[] = {"has", "dims", "same", "fits"};
  const Ast *callee = node->kind == AST_CALL ? node->children[0] : NULL;
  for (size_t i = 0; callee && callee->kind == AST_NAME && i < sizeof of_weights / sizeof *of_weights; i++)
    if (strcmp(callee->name, of_weights[i]) == 0) return true;
  for (uint32_t i = 0; i < node->n_children; i++)
    if (node->children[i] && expression_needs_weights(node->children[i])) return true;
  return false;
}

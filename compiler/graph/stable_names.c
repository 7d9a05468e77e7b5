/* Names that nodes keep. See stable_names.h.
 *
 * In: nodes. Out: names. Refuses nothing; to ask for a node that was not noted is a fault of the compiler. A name is
 * made of where a node comes from. The second node of a name gets a number behind it, the next that is free:
 *
 *   layers.0.attn.q    layers.0.attn.q.2    layers.0.attn.q.3
 *
 * so a name depends on the nodes that were seen before, and on no address. */
#include "graph/stable_names.h"

#include <string.h>

#include "base/check.h"

StableNames *stable_names_new(Arena *arena) {
  StableNames *names = ARENA_NEW(arena, StableNames);
  *names = (StableNames){arena, map_new(arena), map_new(arena)};
  return names;
}

/* Letters, digits and dots, whatever a path of `as` holds: a name is one word of the text. */
static void add_word(StrBuf *out, const char *text) {
  static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.";
  for (; *text; text++) strbuf_add_char(out, strchr(plain, *text) ? *text : '_');
}

/* "layers.0.attn.q"; inputs and weights have names of their own. */
static const char *base_of(Arena *arena, const Node *node) {
  StrBuf out = strbuf_new(arena);
  if (node->op == OP_INPUT || node->op == OP_WEIGHT) {
    add_word(&out, node->attr.name);
    return out.text;
  }
  if (node->origin.path && *node->origin.path) {
    add_word(&out, node->origin.path);
    strbuf_add_char(&out, '.');
  }
  add_word(&out, node->origin.name ? node->origin.name : op_table[node->op].name);
  return out.text;
}

static void note(StableNames *names, const Node *node) {
  const char *base = base_of(names->arena, node), *name = base;
  uintptr_t n = (uintptr_t)map_get(&names->taken, base);
  while (map_has(&names->taken, name)) name = arena_printf(names->arena, "%s.%zu", base, (size_t)++n + 1);
  map_put(&names->taken, name, NULL);
  if (name != base) map_put(&names->taken, base, (void *)n);
  map_put_n(&names->by_node, &node, sizeof node, (void *)name);
}

void stable_names_note(StableNames *names, const Graph *graph) {
  for (const Node *node = graph->first; node; node = node->next)
    if (!map_find(&names->by_node, &node, sizeof node)) note(names, node);
}

const char *stable_name(const StableNames *names, const Node *node) {
  const MapEntry *entry = map_find(&names->by_node, &node, sizeof node);
  CHECK(entry, "node %%%u has no name", node->id);
  return entry->value;
}

// ---- module paths ----

const char *path_without_numbers(Arena *arena, const char *path) {
  StrBuf out = strbuf_new(arena);
  while (*path) {
    const size_t length = strcspn(path, "."), digits = strspn(path, "0123456789");
    if (length && digits == length) strbuf_add_char(&out, '*');
    else strbuf_add_n(&out, path, length);
    path += length;
    if (*path) strbuf_add_char(&out, *path++);
  }
  return out.text;
}

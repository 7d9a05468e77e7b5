/* Common subexpressions: of equal operations on equal operands the first is kept.
 *
 *   %4 = reshape %1 : f32[2, 8]   %4 = reshape %1 : f32[2, 8]
 *   %5 = reshape %1 : f32[2, 8]   users of %5 use %4
 *
 * Legal: the operations are pure, so equal ones give equal values. Inputs of the model are never equal to each other.
 * The origin of the first is kept. Fused nodes are left alone: nothing makes equal ones. */
#include <string.h>

#include "passes/match.h"

typedef struct Key {
  const char *bytes;
  size_t length;
} Key;

static void add_bytes(StrBuf *key, const void *bytes, size_t length) { strbuf_add_n(key, bytes, length); }

static bool commutes(OpKind op) {
  return op == OP_ADD || op == OP_MUL || op == OP_EQ || op == OP_NE || op == OP_AND || op == OP_OR;
}

static void add_inputs(StrBuf *key, const Node *node) {
  uint32_t ids[2];
  if (commutes(node->op)) {
    for (size_t i = 0; i < 2; i++) ids[i] = node->inputs.items[i]->id;
    if (ids[0] > ids[1]) {
      uint32_t first = ids[0];
      ids[0] = ids[1];
      ids[1] = first;
    }
    add_bytes(key, ids, sizeof ids);
    return;
  }
  for (size_t i = 0; i < node->inputs.n; i++) add_bytes(key, &node->inputs.items[i]->id, sizeof(uint32_t));
}

/* Everything that decides the value. Texts go in by content, sizes by address: they are interned. */
static void add_attributes(StrBuf *key, const NodeAttr *attr) {
  add_bytes(key, &attr->number, sizeof attr->number);
  add_bytes(key, &attr->integer, sizeof attr->integer);
  add_bytes(key, &attr->size, sizeof(void *));
  add_bytes(key, attr->starts, sizeof attr->starts);
  add_bytes(key, attr->axes, sizeof attr->axes);
  add_bytes(key, &attr->axis, sizeof attr->axis);
  add_bytes(key, &attr->eps, sizeof attr->eps);
  add_bytes(key, &attr->base, sizeof attr->base);
  bool flags[] = {attr->keepdim, attr->has_weight, attr->has_bias, attr->interleaved};
  add_bytes(key, flags, sizeof flags);
  if (attr->name) strbuf_add(key, attr->name);
}

static Key key_of(Arena *arena, const Node *node) {
  StrBuf key = strbuf_new(arena);
  uint32_t head[] = {node->op, node->dtype, node->rank, (uint32_t)node->inputs.n};
  add_bytes(&key, head, sizeof head);
  add_bytes(&key, node->dims, node->rank * sizeof(void *));
  add_inputs(&key, node);
  add_attributes(&key, &node->attr);
  return (Key){key.text, key.length};
}

bool pass_eliminate_common(Pass *pass) {
  bool changed = false;
  Map seen = map_new(pass->scratch);
  for (Node *node = pass->graph->first, *next; node; node = next) {
    next = node->next;
    if (node->op == OP_INPUT || node->attr.expr) continue;
    Key key = key_of(pass->scratch, node);
    MapEntry *known = map_find(&seen, key.bytes, key.length);
    if (!known) {
      map_put_n(&seen, key.bytes, key.length, node);
      continue;
    }
    match_replace(pass, node, known->value);
    changed = true;
  }
  return changed;
}

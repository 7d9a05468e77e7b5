#include "aot/describe.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "aot/library_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

// ---- the layout of the weights ----

/* The static subgraph below a node as text: what it computes from which weights. */
static void print_recipe(StrBuf *out, const SizeTable *sizes, const Node *node) {
  strbuf_printf(out, "%s ", op_table[node->op].name);
  node_print_shape(out, sizes, node);
  if (node->attr.name) strbuf_add_quoted(out, node->attr.name);
  strbuf_printf(out, " %a %lld %d", node->attr.number, (long long)node->attr.integer, node->attr.axis);
  for (uint32_t i = 0; i < node->rank; i++) {
    if (node->op == OP_PERMUTE) strbuf_printf(out, " %d", node->attr.axes[i]);
    if (node->op != OP_SLICE) continue;
    strbuf_add_char(out, ' ');
    size_print(out, sizes, node->attr.starts[i]);
  }
  strbuf_add_char(out, '(');
  for (size_t i = 0; i < node->inputs.n; i++) print_recipe(out, sizes, node->inputs.items[i]);
  strbuf_add_char(out, ')');
}

void library_layout(Arena *arena, const Plan *plan, uint8_t layout[16]) {
  StrBuf text = strbuf_new(arena);
  for (size_t i = 0; i < plan->recipes.n; i++) {
    const WeightRecipe *recipe = &plan->recipes.items[i];
    strbuf_printf(&text, "%llu %llu %d %u ", (unsigned long long)recipe->offset, (unsigned long long)recipe->bytes,
                  recipe->layout, recipe->width);
    print_recipe(&text, plan->graph->sizes, recipe->node);
    strbuf_add_char(&text, '\n');
  }
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(text.text, text.length));
  memcpy(layout, canonical.digest, 16);
}

// ---- the description ----

static json_t *describe_tensors(const tfm_tensor_info *tensors, uint32_t n, const char **members) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < n; i++)
    json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", tensors[i].name, "type", tensors[i].shape, "member", members[i]));
  return list;
}

static json_t *describe_texts(const char *const *texts, uint32_t n) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < n; i++) json_array_append_new(list, json_string(texts[i]));
  return list;
}

const char *describe_library(Arena *arena, const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0]->program;
  const char **sets = ARENA_ARRAY(arena, const char *, parts->n_plans);
  for (uint32_t i = 0; i < parts->n_plans; i++) sets[i] = parts->plans[i]->target->name;
  uint8_t layout[16];
  library_layout(arena, parts->plans[0], layout);
  json_t *json = json_pack(
      "{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:I, s:b, s:s, s:o?}", "model", p->name, "prefix", parts->names->prefix, "version",
      parts->version, "instruction_sets", describe_texts(sets, parts->n_plans), "sizes",
      describe_texts(p->symbols, p->n_symbols), "inputs", describe_tensors(p->inputs, p->n_inputs, parts->names->inputs),
      "outputs", describe_tensors(p->outputs, p->n_outputs, parts->names->outputs), "weights_bytes",
      (json_int_t)p->weights_bytes, "weights_embedded", parts->weights != NULL, "layout", layout_text(arena, layout),
      "source", parts->text ? model_text_write(parts->text) : NULL);
  char *text = json_dumps(json, JSON_COMPACT);
  char *copy = arena_strdup(arena, text ? text : "{}");
  free(text);
  json_decref(json);
  return copy;
}

/* The list of families. See family_list.h. */
#include "import/family_list.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "import/family.h"

static Texts types_of(Arena *arena, const Family *family) {
  const Ast *types = family->checkpoint->children[0];
  Texts texts = {0};
  for (uint32_t i = 0; i < types->n_children; i++) vec_push(arena, &texts, types->children[i]->text);
  return texts;
}

static void add_joined(StrBuf *out, const Texts *texts, const char *between) {
  for (size_t i = 0; i < texts->n; i++) strbuf_printf(out, "%s%s", i ? between : "", texts->items[i]);
}

void family_list_lines(StrBuf *out) {
  Map names = map_new(out->arena);
  const Families families = families_embedded(out->arena, &names);
  for (size_t i = 0; i < families.n; i++) {
    const Texts types = types_of(out->arena, families.items[i]);
    strbuf_printf(out, "%-22s ", families.items[i]->source->path);
    add_joined(out, &types, " ");
    strbuf_add_char(out, '\n');
  }
}

// ---- as data ----

static json_t *list_of(const Texts *texts) {
  json_t *list = json_array();
  for (size_t i = 0; i < texts->n; i++) json_array_append_new(list, json_string(texts->items[i]));
  return list;
}

void family_list_json(StrBuf *out) {
  Map names = map_new(out->arena);
  const Families families = families_embedded(out->arena, &names);
  json_t *list = json_array();
  for (size_t i = 0; i < families.n; i++) {
    const Family *family = families.items[i];
    const Texts types = types_of(out->arena, family), tasks = family_tasks(out->arena, family);
    const Texts classes = family_texts(out->arena, family, "classes");
    json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o, s:b, s:b}", "file", family->source->path, "model_types",
                                          list_of(&types), "classes", list_of(&classes), "tasks", list_of(&tasks),
                                          "writes", family_writes(family), "sentence_vectors",
                                          family_param(family, "sentence") >= 0));
  }
  char *text = json_dumps(list, JSON_INDENT(2));
  if (text) strbuf_printf(out, "%s\n", text);
  free(text);
  json_decref(list);
}

// ---- as a table ----

/* The comment that the file begins with, up to its first empty line: what models these are. */
static void add_head(StrBuf *out, const char *text) {
  for (; text[0] == '#' && text[1] == ' '; text += text[0] == '\n') {
    const size_t length = strcspn(text, "\n");
    strbuf_printf(out, " %.*s", (int)(length - 2), text + 2);
    text += length;
  }
}

void family_list_table(StrBuf *out) {
  Map names = map_new(out->arena);
  const Families families = families_embedded(out->arena, &names);
  strbuf_add(out, "| file | what it is | `model_type` | classes, without the model's name | tasks | |\n"
                  "|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < families.n; i++) {
    const Family *family = families.items[i];
    const Texts types = types_of(out->arena, family), tasks = family_tasks(out->arena, family);
    const Texts classes = family_texts(out->arena, family, "classes");
    strbuf_printf(out, "| `%s` |", family->source->path);
    add_head(out, family->source->text);
    strbuf_add(out, " | ");
    add_joined(out, &types, ", ");
    strbuf_add(out, " | ");
    add_joined(out, &classes, ", ");
    strbuf_add(out, " | ");
    add_joined(out, &tasks, ", ");
    strbuf_printf(out, " | %s |\n", family_writes(family)                       ? "writes"
                                    : family_param(family, "sentence") >= 0 ? "sentence vectors"
                                                                            : "");
  }
}

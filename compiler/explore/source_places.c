/* Places and modules: what the data refer to by number.
 *
 * * In: spans of sources, origins, paths of modules, weights. Out: numbers; the list of files with their texts, the
 * list of modules with their layers, config values and weights. Of the standard layers' text only the lines of layers
 * that something refers to are there; the others are empty, so that lines keep their numbers. Refuses nothing: text
 * that is no UTF-8 is escaped. */
#include <string.h>

#include "explore/explorer.h"

json_t *explorer_text(Explorer *x, const char *text) {
  json_t *made = json_string(text_shown(x->arena, text));
  return made ? made : json_string("");
}

// ---- files ----

static int file_of(Explorer *x, Source *source) {
  for (size_t i = 0; i < x->files.n; i++)
    if (x->files.items[i] == source) return (int)i;
  source_place(source, 0); /* counts its lines */
  vec_push(x->arena, &x->files, source);
  vec_push(x->arena, &x->file_lines, ARENA_ARRAY(x->arena, uint8_t, source->n_lines + 2));
  return (int)x->files.n - 1;
}

static bool line_of(Explorer *x, SrcSpan span, int *file, int *line) {
  if (!span.source) return false;
  *file = file_of(x, span.source);
  *line = (int)source_place(span.source, span.begin).line;
  x->file_lines.items[*file][*line] = 1;
  return true;
}

json_t *explorer_place(Explorer *x, SrcSpan span) {
  int file, line;
  return line_of(x, span, &file, &line) ? json_pack("[ii]", file, line) : json_null();
}

static void add_line(Explorer *x, json_t *lines, SrcSpan span) {
  int file, line;
  if (!line_of(x, span, &file, &line)) return;
  for (size_t i = 0; i < json_array_size(lines); i++) {
    const json_t *known = json_array_get(lines, i);
    if (json_integer_value(json_array_get(known, 0)) == file && json_integer_value(json_array_get(known, 1)) == line)
      return;
  }
  json_array_append_new(lines, json_pack("[ii]", file, line));
}

void explorer_add_lines(Explorer *x, json_t *lines, const Origin *origin) {
  add_line(x, lines, origin->span);
  for (const Frame *frame = origin->frame; frame; frame = frame->caller) add_line(x, lines, frame->span);
}

json_t *explorer_lines(Explorer *x, const Origin *origin) {
  json_t *lines = json_array();
  explorer_add_lines(x, lines, origin);
  return lines;
}

static bool is_standard(const Source *source) { return source->path[0] == '<'; }

/* Whether something refers to a line of the block that begins at `line`: up to the next line that begins one. */
static bool block_is_used(const Explorer *x, uint32_t file, uint32_t line, uint32_t end) {
  for (uint32_t i = line; i < end; i++)
    if (x->file_lines.items[file][i]) return true;
  return false;
}

/* Blocks of a standard file are separated by empty lines. */
static void add_used_blocks(const Explorer *x, uint32_t file, StrBuf *text) {
  Source *source = x->files.items[file];
  uint32_t length;
  for (uint32_t line = 1; line <= source->n_lines;) {
    uint32_t end = line;
    do {
      source_line(source, end, &length);
      end++;
    } while (length && end <= source->n_lines);
    const bool is_used = block_is_used(x, file, line, end);
    for (; line < end; line++) {
      const char *begin = source_line(source, line, &length);
      if (is_used) strbuf_add_n(text, begin, length);
      strbuf_add_char(text, '\n');
    }
  }
}

/* Line by line, so that every end of a line is one; bytes that are no UTF-8 are escaped. */
static const char *text_of(const Explorer *x, uint32_t file) {
  StrBuf text = strbuf_new(x->arena);
  Source *source = x->files.items[file];
  uint32_t length;
  if (is_standard(source)) {
    add_used_blocks(x, file, &text);
    return text.text;
  }
  for (uint32_t line = 1; line <= source->n_lines; line++) {
    const char *begin = source_line(source, line, &length);
    for (uint32_t at = 0; at < length;) {
      uint32_t character;
      const unsigned n = utf8_decode(begin + at, length - at, &character);
      if (n && (character >= ' ' || character == '\t')) strbuf_add_n(&text, begin + at, n);
      else utf8_add_escaped(&text, begin + at, n ? n : 1);
      at += n ? n : 1;
    }
    if (line < source->n_lines) strbuf_add_char(&text, '\n');
  }
  return text.text;
}

json_t *explorer_files(Explorer *x) {
  json_t *files = json_array();
  for (uint32_t i = 0; i < x->files.n; i++)
    json_array_append_new(files, json_pack("{s:o, s:s}", "name", explorer_text(x, x->files.items[i]->name), "text",
                                           text_of(x, i)));
  return files;
}

// ---- modules ----

/* A module that nothing was said of is what stands between two others, such as a list of layers. */
int explorer_module(Explorer *x, const char *path) {
  const uintptr_t known = (uintptr_t)map_get(&x->modules, path);
  if (known) return (int)known - 1;
  const char *dot = strrchr(path, '.');
  const int parent = !*path ? -1 : explorer_module(x, dot ? arena_strndup(x->arena, path, (size_t)(dot - path)) : "");
  const int number = (int)json_array_size(x->module_list);
  map_put(&x->modules, path, (void *)(uintptr_t)(number + 1));
  json_array_append_new(x->module_list,
                        json_pack("{s:o, s:i, s:s, s:n, s:[], s:[]}", "path", explorer_text(x, path), "parent", parent,
                                  "layer", "", "line", "config", "weights"));
  return number;
}

static void note_weight(Explorer *x, const Graph *graph, const Node *node) {
  StrBuf shape = strbuf_new(x->arena);
  int64_t elements = 0;
  node_print_shape(&shape, graph->sizes, node);
  size_is_const(node_elements(graph->sizes, node), &elements);
  const bool is_half = node->attr.stored == STORED_BF16 || node->attr.stored == STORED_F16;
  const int64_t bytes = elements * (node->dtype == DTYPE_BOOL ? 1 : is_half ? 2 : 4);
  json_t *module = json_array_get(x->module_list, (size_t)explorer_module(x, node->origin.path));
  json_array_append_new(
      json_object_get(module, "weights"),
      json_pack("{s:o, s:s, s:s, s:s, s:I, s:o}", "name", explorer_text(x, node->attr.name), "shape", shape.text,
                "dtype", dtype_names[node->dtype], "stored", stored_table[node->attr.stored].name, "bytes",
                (json_int_t)bytes, "line", explorer_place(x, node->origin.span)));
}

static void note_module(Explorer *x, const GraphModule *module) {
  json_t *made = json_array_get(x->module_list, (size_t)explorer_module(x, module->path));
  json_t *config = json_array();
  for (uint32_t i = 0; i < module->n_config; i++)
    json_array_append_new(config, json_pack("[oo]", explorer_text(x, module->config[2 * i]),
                                            explorer_text(x, module->config[2 * i + 1])));
  json_object_set_new(made, "layer", explorer_text(x, module->layer));
  json_object_set_new(made, "line", explorer_place(x, module->span));
  json_object_set_new(made, "config", config);
}

void explorer_note_modules(Explorer *x, const Graph *graph) {
  for (size_t i = 0; i < graph->notes.modules.n; i++) note_module(x, &graph->notes.modules.items[i]);
  for (const Node *node = graph->first; node; node = node->next)
    if (node->op == OP_WEIGHT) note_weight(x, graph, node);
}

/* In: the text form of a graph (print.c shows it). Out: the graph, or one error with its line and column: the first thing that
 * is not as expected. What is read has the syntax of a graph and uses only what it defines; whether types and shapes
 * are right is graph_verify's to say. Comments begin with # and may stand wherever blanks may. */
#include <string.h>

#include "graph/graph_reader.h"

bool read_fault(GraphReader *r, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(r->arena, format, args);
  va_end(args);
  scan_blanks(&r->text);
  uint32_t at = (uint32_t)(r->text - r->source->text);
  diag_error(r->diag, (SrcSpan){r->source, at, at < r->source->size ? at + 1 : at}, DIAG_GRAPH_SYNTAX, "%s", text);
  return false;
}

bool read_expect(GraphReader *r, char c) { return scan_char(&r->text, c) || read_fault(r, "expected '%c'", c); }

const char *read_name(GraphReader *r, const char *what) {
  const char *name;
  size_t length;
  if (scan_name(&r->text, &name, &length)) return arena_strndup(r->arena, name, length);
  if (scan_string(r->arena, &r->text, &name)) return name;
  read_fault(r, "expected %s", what);
  return NULL;
}

const Size *read_size(GraphReader *r) {
  scan_blanks(&r->text);
  const char *end = r->text;
  const Size *size = size_read(r->graph->sizes, &end);
  if (!size) read_fault(r, "expected a size: integers and declared sizes with +, - and *");
  else r->text = end;
  return size;
}

bool read_sizes(GraphReader *r, uint32_t *n, const Size **sizes) {
  *n = 0;
  if (!read_expect(r, '[')) return false;
  if (scan_char(&r->text, ']')) return true;
  do {
    if (*n == MAX_RANK) return read_fault(r, "more than %d axes", MAX_RANK);
    sizes[*n] = read_size(r);
    if (!sizes[(*n)++]) return false;
  } while (scan_char(&r->text, ','));
  return read_expect(r, ']');
}

Node *read_operand(GraphReader *r) {
  const char *begin = r->text;
  int64_t number;
  if (!scan_char(&r->text, '%') || !scan_integer(&r->text, &number)) {
    read_fault(r, "expected a node such as %%3");
    return NULL;
  }
  MapEntry *entry = map_find(&r->nodes, &number, sizeof number);
  if (entry) return entry->value;
  r->text = begin;
  read_fault(r, "%%%lld is not defined before", (long long)number);
  return NULL;
}

// ---- the header ----

static bool read_symbol(GraphReader *r) {
  const char *name;
  size_t length;
  if (!scan_name(&r->text, &name, &length)) return read_fault(r, "expected the name of a size");
  return size_symbol(r->graph->sizes, arena_strndup(r->arena, name, length)) ||
         read_fault(r, "more than %d sizes", SIZE_MAX_SYMBOLS);
}

/* The index of a declared size; -1 after an error. */
static int32_t read_declared(GraphReader *r) {
  for (uint32_t i = 0; i < r->graph->sizes->n_symbols; i++) {
    if (scan_word(&r->text, r->graph->sizes->symbols[i])) return (int32_t)i;
  }
  read_fault(r, "expected a declared size");
  return -1;
}

static bool read_ragged(GraphReader *r) {
  do {
    int32_t symbol = read_declared(r);
    if (symbol < 0) return false;
    r->graph->ragged[symbol] = true;
  } while (scan_char(&r->text, ','));
  if (!scan_word(&r->text, "of")) return read_fault(r, "expected 'of' and the size of the batch");
  r->graph->ragged_batch = read_declared(r);
  return r->graph->ragged_batch >= 0;
}

static bool read_header(GraphReader *r) {
  if (!scan_word(&r->text, "graph")) return read_fault(r, "expected 'graph'");
  const char *name = read_name(r, "the name of the graph");
  if (!name) return false;
  r->graph = graph_new(r->arena, name);
  if (!read_expect(r, '(')) return false;
  if (scan_word(&r->text, "sizes")) {
    do {
      if (!read_symbol(r)) return false;
    } while (scan_char(&r->text, ','));
    if (scan_char(&r->text, ';')) {
      if (!scan_word(&r->text, "ragged")) return read_fault(r, "expected 'ragged'");
      if (!read_ragged(r)) return false;
    }
  }
  return read_expect(r, ')') && read_expect(r, '{');
}

// ---- statements ----

static bool read_output(GraphReader *r) {
  const char *name = read_name(r, "the name of an output");
  if (!name || !read_expect(r, '=')) return false;
  Node *node = read_operand(r);
  if (node) vec_push(r->arena, &r->graph->outputs, (GraphOutput){name, node});
  return node != NULL;
}

static bool read_setting_value(GraphReader *r, GenerateSetting *setting) {
  double number;
  int64_t integer;
  if (!scan_number(&r->text, &number)) {
    if (!scan_integer(&r->text, &integer)) return read_fault(r, "expected a number");
    number = (double)integer;
  }
  vec_push(r->arena, &setting->values, number);
  return true;
}

static bool read_setting(GraphReader *r) {
  GenerateSetting setting = {.name = read_name(r, "the name of a setting")};
  if (!setting.name || !read_expect(r, '=')) return false;
  if (!scan_char(&r->text, '[')) {
    if (!read_setting_value(r, &setting)) return false;
  } else if (!scan_char(&r->text, ']')) {
    do {
      if (!read_setting_value(r, &setting)) return false;
    } while (scan_char(&r->text, ','));
    if (!read_expect(r, ']')) return false;
  }
  vec_push(r->arena, &r->graph->generate_settings, setting);
  return true;
}

static bool read_generate(GraphReader *r) {
  if (r->graph->generate_input) return read_fault(r, "a second generate");
  r->graph->generate_input = read_name(r, "the name of an input");
  if (!r->graph->generate_input) return false;
  if (!scan_word(&r->text, "from")) return read_fault(r, "expected 'from'");
  r->graph->generate_output = read_name(r, "the name of an output");
  if (!r->graph->generate_output || !read_expect(r, '{')) return false;
  if (scan_char(&r->text, '}')) return true;
  do {
    if (!read_setting(r)) return false;
  } while (scan_char(&r->text, ','));
  return read_expect(r, '}');
}

static bool read_statement(GraphReader *r) {
  scan_blanks(&r->text);
  if (*r->text == '%') return read_node(r);
  if (scan_word(&r->text, "output")) return read_output(r);
  if (scan_word(&r->text, "check")) return read_check(r);
  if (scan_word(&r->text, "generate")) return read_generate(r);
  return read_fault(r, "expected a node, 'check', 'output', 'generate' or '}'");
}

Graph *graph_read(Arena *arena, Diag *diag, Source *source) {
  GraphReader r = {.arena = arena, .diag = diag, .source = source, .text = source->text, .nodes = map_new(arena)};
  if (!read_header(&r)) return NULL;
  while (!scan_char(&r.text, '}')) {
    if (!read_statement(&r)) return NULL;
  }
  scan_blanks(&r.text);
  if (r.text != source->text + source->size) {
    read_fault(&r, "expected the end of the text");
    return NULL;
  }
  return r.graph;
}

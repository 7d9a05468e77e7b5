/* In: the text form of a graph (print.c shows it). Out: the graph, or one error with its line and column: the first
 * thing that is not what the grammar expects. The reader accepts anything with the syntax of a graph that uses only
 * what it has defined; whether types and shapes are right is for graph_verify to say. Comments begin with # and may
 * stand wherever blanks may.
 *
 * The text is read from the inside out: words (read_words.c), nodes (read_nodes.c), and here checks, the header,
 * statements, the whole. Limits: axes and sizes are counted against MAX_RANK and SIZE_MAX_SYMBOLS, and recursion is
 * bounded (text.c, expr.c), so a hostile text costs no more than its length. All memory is the arena's, also after an
 * error. */
#include <string.h>

#include "graph/graph.h"
#include "graph/read_words.h"
#include "graph/text.h"

// ---- checks ----

static bool read_check(GraphReader *r) {
  scan_blanks(&r->text);
  uint32_t begin = (uint32_t)(r->text - r->source->text);
  const char *error;
  Check check = {0};
  if (!check_read(r->arena, r->graph->sizes, &r->text, &check, &error)) return graph_read_fault(r, "%s", error);
  check.origin = (Origin){.span = {r->source, begin, (uint32_t)(r->text - r->source->text)}, .path = ""};
  vec_push(r->arena, &r->graph->checks, check);
  return true;
}

// ---- the header ----

static bool read_size_role(GraphReader *r, const Size *size) {
  for (int i = 0; i < N_SIZE_ROLES; i++) {
    if (!scan_word(&r->text, size_role_names[i])) continue;
    if (r->graph->size_roles[i] >= 0) return graph_read_fault(r, "a second size with the role %s", size_role_names[i]);
    r->graph->size_roles[i] = size_symbol_of(size);
    return true;
  }
  return graph_read_fault(r, "expected the role of a size: rows, past, fresh or kept");
}

static bool read_symbol(GraphReader *r) {
  const char *name;
  size_t length;
  if (!scan_name(&r->text, &name, &length)) return graph_read_fault(r, "expected the name of a size");
  const Size *size = size_symbol(r->graph->sizes, arena_strndup(r->arena, name, length));
  if (!size) return graph_read_fault(r, "more than %d sizes", SIZE_MAX_SYMBOLS);
  return !scan_word(&r->text, "as") || read_size_role(r, size);
}

/* The index of a declared size; -1 after an error. */
static int32_t read_declared(GraphReader *r) {
  for (uint32_t i = 0; i < r->graph->sizes->n_symbols; i++) {
    if (scan_word(&r->text, r->graph->sizes->symbols[i])) return (int32_t)i;
  }
  graph_read_fault(r, "expected a declared size");
  return -1;
}

/* "time, source of batch" */
static bool read_ragged(GraphReader *r) {
  do {
    int32_t symbol = read_declared(r);
    if (symbol < 0) return false;
    r->graph->ragged[symbol] = true;
  } while (scan_char(&r->text, ','));
  if (!scan_word(&r->text, "of")) return graph_read_fault(r, "expected 'of' and the size of the batch");
  r->graph->ragged_batch = read_declared(r);
  return r->graph->ragged_batch >= 0;
}

/* "graph G(sizes batch as rows, time; ragged time of batch) {" */
static bool read_header(GraphReader *r) {
  if (!scan_word(&r->text, "graph")) return graph_read_fault(r, "expected 'graph'");
  const char *name = graph_read_name(r, "the name of the graph");
  if (!name) return false;
  r->graph = graph_new(r->arena, name);
  if (!graph_read_expect(r, '(')) return false;
  if (scan_word(&r->text, "sizes")) {
    do {
      if (!read_symbol(r)) return false;
    } while (scan_char(&r->text, ','));
    if (scan_char(&r->text, ';')) {
      if (!scan_word(&r->text, "ragged")) return graph_read_fault(r, "expected 'ragged'");
      if (!read_ragged(r)) return false;
    }
  }
  return graph_read_expect(r, ')') && graph_read_expect(r, '{');
}

// ---- statements ----

static bool read_output(GraphReader *r) {
  GraphOutput output = {.name = graph_read_name(r, "the name of an output")};
  if (!output.name || !graph_read_role(r, &output.role) || !graph_read_expect(r, '=')) return false;
  output.node = graph_read_operand(r);
  if (output.node) vec_push(r->arena, &r->graph->outputs, output);
  return output.node != NULL;
}

static bool read_setting_value(GraphReader *r, GenerateSetting *setting) {
  double number;
  int64_t integer;
  if (!scan_number(&r->text, &number)) {
    if (!scan_integer(&r->text, &integer)) return graph_read_fault(r, "expected a number");
    number = (double)integer;
  }
  vec_push(r->arena, &setting->values, number);
  return true;
}

static bool read_setting(GraphReader *r) {
  GenerateSetting setting = {.name = graph_read_name(r, "the name of a setting")};
  if (!setting.name || !graph_read_expect(r, '=')) return false;
  if (!scan_char(&r->text, '[')) {
    if (!read_setting_value(r, &setting)) return false;
  } else if (!scan_char(&r->text, ']')) {
    do {
      if (!read_setting_value(r, &setting)) return false;
    } while (scan_char(&r->text, ','));
    if (!graph_read_expect(r, ']')) return false;
  }
  vec_push(r->arena, &r->graph->generate_settings, setting);
  return true;
}

/* "generate ids from y { bos = 1, eos = [2, 3] }"; names and values are checked where they are used. */
static bool read_generate(GraphReader *r) {
  if (r->graph->generate_input) return graph_read_fault(r, "a second generate");
  r->graph->generate_input = graph_read_name(r, "the name of an input");
  if (!r->graph->generate_input) return false;
  if (!scan_word(&r->text, "from")) return graph_read_fault(r, "expected 'from'");
  r->graph->generate_output = graph_read_name(r, "the name of an output");
  if (!r->graph->generate_output || !graph_read_expect(r, '{')) return false;
  if (scan_char(&r->text, '}')) return true;
  do {
    if (!read_setting(r)) return false;
  } while (scan_char(&r->text, ','));
  return graph_read_expect(r, '}');
}

static bool read_statement(GraphReader *r) {
  scan_blanks(&r->text);
  if (*r->text == '%') return graph_read_node(r);
  if (scan_word(&r->text, "output")) return read_output(r);
  if (scan_word(&r->text, "check")) return read_check(r);
  if (scan_word(&r->text, "generate")) return read_generate(r);
  return graph_read_fault(r, "expected a node, 'check', 'output', 'generate' or '}'");
}

Graph *graph_read(Arena *arena, Diag *diag, Source *source) {
  GraphReader r = {.arena = arena, .diag = diag, .source = source, .text = source->text, .nodes = map_new(arena)};
  if (!read_header(&r)) return NULL;
  while (!scan_char(&r.text, '}')) {
    if (!read_statement(&r)) return NULL;
  }
  scan_blanks(&r.text);
  if (r.text != source->text + source->size) {
    graph_read_fault(&r, "expected the end of the text");
    return NULL;
  }
  return r.graph;
}

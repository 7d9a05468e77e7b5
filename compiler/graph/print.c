/* In: a graph. Out: its text form, one node a line, which read.c reads back:
 *
 *   graph Tiny(sizes batch, time; ragged time of batch) {
 *     %0 = input "ids" : i32[batch, time]
 *     %1 = weight "embed.weight" : f32[1000, 64]
 *     %2 = gather %1, %0 : f32[batch, time, 64]
 *     check time <= 64, "the sequence is {time} long"
 *     output hidden = %2
 *   }
 *
 * In the graphs of the incremental form, sizes, inputs and outputs say what they stand for: "sizes batch as rows",
 * "input "cache.0" as cache 0", "output y as logits".
 *
 * The text is the same in every run, without addresses and in no hash order, because tests and caches compare it. Names
 * that are not plain identifiers are quoted and escaped.
 *
 * Nodes may have names in place of their numbers (stable_names.h). And where something in a graph comes from, as
 * messages show it: its place in the user's own files, with notes of the calls that led there. The innermost ones may
 * be in the standard layers, which are compiled in as "<std>" and "<std/functions>". */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graph/attributes.h"
#include "graph/stable_names.h"
#include "graph/text.h"

static void print_name(StrBuf *out, const char *name) {
  if (text_is_name(name))
    strbuf_add(out, name);
  else
    strbuf_add_quoted(out, name);
}

// ---- nodes ----

void node_print_attributes(StrBuf *out, const SizeTable *table, const Node *node, const char *separator) {
  for (int i = 0; i < N_ATTRIBUTES; i++) {
    Attribute attribute = (Attribute)i;
    if (!op_has_attribute(node->op, attribute) || attribute_is_left_out(&node->attr, attribute)) continue;
    strbuf_add(out, separator);
    separator = ", ";
    if (!attribute_table[i].is_bare) strbuf_printf(out, "%s=", attribute_table[i].name);
    attribute_print(out, table, node, attribute);
  }
  strbuf_printf(out, " : %s", dtype_names[node->dtype]);
  sizes_print(out, table, node->rank, (const Size *const *)node->dims);
}

/* By number, or by name if there are names. */
static void print_reference(StrBuf *out, const Node *node, const StableNames *names) {
  if (names)
    strbuf_printf(out, "%%%s", stable_name(names, node));
  else
    strbuf_printf(out, "%%%u", node->id);
}

static void print_node(StrBuf *out, const SizeTable *table, const Node *node, const StableNames *names) {
  print_reference(out, node, names);
  strbuf_printf(out, " = %s", op_table[node->op].name);
  const char *separator = " ";
  for (size_t i = 0; i < node->inputs.n; i++) {
    strbuf_add(out, separator);
    print_reference(out, node->inputs.items[i], names);
    separator = ", ";
  }
  node_print_attributes(out, table, node, separator);
}

void node_print(StrBuf *out, const SizeTable *table, const Node *node) { print_node(out, table, node, NULL); }

// ---- the rest of the graph ----

/* Whole numbers are printed as such up to 1e15, which a double holds exactly; -0 keeps its sign and a point. */
static void print_setting_value(StrBuf *out, double value) {
  if (value == floor(value) && fabs(value) < 1e15 && !(value == 0 && signbit(value)))
    strbuf_printf(out, "%.0f", value);
  else
    print_f64(out, value);
}

static void print_generate(StrBuf *out, const Graph *graph) {
  strbuf_add(out, "  generate ");
  print_name(out, graph->generate_input);
  strbuf_add(out, " from ");
  print_name(out, graph->generate_output);
  strbuf_add(out, " {");
  for (size_t i = 0; i < graph->generate_settings.n; i++) {
    const GenerateSetting *setting = &graph->generate_settings.items[i];
    strbuf_add(out, i ? ", " : " ");
    print_name(out, setting->name);
    strbuf_add(out, setting->values.n == 1 ? " = " : " = [");
    for (size_t j = 0; j < setting->values.n; j++) {
      if (j) strbuf_add(out, ", ");
      print_setting_value(out, setting->values.items[j]);
    }
    if (setting->values.n != 1) strbuf_add_char(out, ']');
  }
  strbuf_add(out, graph->generate_settings.n ? " }\n" : "}\n");
}

static void print_symbol(StrBuf *out, const Graph *graph, uint32_t symbol) {
  strbuf_add(out, graph->sizes->symbols[symbol]);
  for (int i = 0; i < N_SIZE_ROLES; i++)
    if (graph->size_roles[i] == (int32_t)symbol) strbuf_printf(out, " as %s", size_role_names[i]);
}

/* Sizes in the order of declaration, which is that of their indexes: the reader declares them in the same order. */
static void print_header(StrBuf *out, const Graph *graph) {
  const SizeTable *table = graph->sizes;
  strbuf_add(out, "graph ");
  print_name(out, graph->name);
  strbuf_add_char(out, '(');
  for (uint32_t i = 0; i < table->n_symbols; i++) {
    strbuf_add(out, i ? ", " : "sizes ");
    print_symbol(out, graph, i);
  }
  const char *separator = "; ragged ";
  for (uint32_t i = 0; i < table->n_symbols && graph->ragged_batch >= 0; i++) {
    if (!graph->ragged[i]) continue;
    strbuf_printf(out, "%s%s", separator, table->symbols[i]);
    separator = ", ";
  }
  if (separator[0] == ',') strbuf_printf(out, " of %s", table->symbols[graph->ragged_batch]);
  strbuf_add(out, ") {\n");
}

/* "  # model.tfm:3 layers.0.self_attn"; a path may hold any byte, a comment no line end. */
static void print_origin(StrBuf *out, const Origin *origin) {
  StrBuf text = strbuf_new(out->arena);
  if (origin->span.source) {
    SrcPlace place = source_place(origin->span.source, origin->span.begin);
    strbuf_printf(&text, " %s:%u", origin->span.source->path, place.line);
  }
  if (origin->path && *origin->path) strbuf_printf(&text, " %s", origin->path);
  for (char *c = text.text; *c; c++) {
    if ((unsigned char)*c < ' ') *c = '?';
  }
  if (text.length) strbuf_printf(out, "  #%s", text.text);
}

static void print_all(StrBuf *out, Graph *graph, bool origins, const StableNames *names) {
  graph_renumber(graph);
  print_header(out, graph);
  for (const Node *node = graph->first; node; node = node->next) {
    strbuf_add(out, "  ");
    print_node(out, graph->sizes, node, names);
    if (origins) print_origin(out, &node->origin);
    strbuf_add_char(out, '\n');
  }
  for (size_t i = 0; i < graph->checks.n; i++) {
    strbuf_add(out, "  ");
    check_print(out, graph->sizes, &graph->checks.items[i]);
    if (origins) print_origin(out, &graph->checks.items[i].origin);
    strbuf_add_char(out, '\n');
  }
  for (size_t i = 0; i < graph->outputs.n; i++) {
    strbuf_add(out, "  output ");
    print_name(out, graph->outputs.items[i].name);
    role_print(out, graph->outputs.items[i].role);
    strbuf_add(out, " = ");
    print_reference(out, graph->outputs.items[i].node, names);
    strbuf_add_char(out, '\n');
  }
  if (graph->generate_input) print_generate(out, graph);
  strbuf_add(out, "}\n");
}

void graph_print(StrBuf *out, Graph *graph) { print_all(out, graph, false, NULL); }

void graph_print_with_origins(StrBuf *out, Graph *graph) { print_all(out, graph, true, NULL); }

void graph_print_with_names(StrBuf *out, Graph *graph, StableNames *names) {
  stable_names_note(names, graph);
  print_all(out, graph, false, names);
}

// ---- origins in messages ----

enum { MOST_CALLS = 8 }; /* a recursion of modules would fill the screen */

static bool is_standard(SrcSpan span) { return span.source && strncmp(span.source->path, "<std", 4) == 0; }

SrcSpan origin_place(const Origin *origin) {
  SrcSpan place = origin->span;
  for (const Frame *frame = origin->frame; frame && is_standard(place); frame = frame->caller) place = frame->span;
  return place;
}

/* From the inside to the outside. Within the standard layers each note is a place and what it is part of; outside, a
 * call and what was called, from where the message itself points to. The outermost frame is the model. */
void origin_note_calls(Diag *diag, const Origin *origin) {
  SrcSpan at = origin->span;
  int n = 0;
  for (const Frame *frame = origin->frame; frame && frame->caller && n < MOST_CALLS; frame = frame->caller, n++) {
    if (is_standard(at))
      diag_note(diag, at, "%s, in %s", n ? "called here" : "here", frame->name);
    else
      diag_note(diag, frame->span, "in %s, called here", frame->name);
    at = frame->span;
  }
}

void origin_error(Diag *diag, const Origin *origin, DiagCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  diag_error(diag, origin_place(origin), code, "%s", arena_vprintf(diag->arena, format, args));
  va_end(args);
  origin_note_calls(diag, origin);
}

// ---- for the debugger ----

void graph_dump(Graph *graph) {
  Arena *scratch = arena_create();
  StrBuf out = strbuf_new(scratch);
  graph_print_with_origins(&out, graph);
  fputs(out.text, stderr);
  arena_destroy(scratch);
}

void node_dump(const Graph *graph, const Node *node) {
  Arena *scratch = arena_create();
  StrBuf out = strbuf_new(scratch);
  node_print(&out, graph->sizes, node);
  fprintf(stderr, "%s\n", out.text);
  arena_destroy(scratch);
}

/* In: the text of a graph. Out: its words. See read_words.h. */
#include "graph/read_words.h"

#include <stdarg.h>

#include "graph/text.h"

bool graph_read_fault(GraphReader *r, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(r->arena, format, args);
  va_end(args);
  scan_blanks(&r->text);
  uint32_t at = (uint32_t)(r->text - r->source->text);
  diag_error(r->diag, (SrcSpan){r->source, at, at < r->source->size ? at + 1 : at}, DIAG_GRAPH_SYNTAX, "%s", text);
  return false;
}

bool graph_read_expect(GraphReader *r, char c) {
  return scan_char(&r->text, c) || graph_read_fault(r, "expected '%c'", c);
}

const char *graph_read_name(GraphReader *r, const char *what) {
  const char *name;
  size_t length;
  if (scan_name(&r->text, &name, &length)) return arena_strndup(r->arena, name, length);
  if (scan_string(r->arena, &r->text, &name)) return name;
  graph_read_fault(r, "expected %s", what);
  return NULL;
}

const Size *graph_read_size(GraphReader *r) {
  scan_blanks(&r->text);
  const char *end = r->text;
  const Size *size = size_read(r->graph->sizes, &end);
  if (!size) graph_read_fault(r, "expected a size: integers and declared sizes with +, -, * and // by a number");
  else r->text = end;
  return size;
}

bool graph_read_sizes(GraphReader *r, uint32_t *n, const Size **sizes) {
  *n = 0;
  if (!graph_read_expect(r, '[')) return false;
  if (scan_char(&r->text, ']')) return true;
  do {
    if (*n == MAX_RANK) return graph_read_fault(r, "more than %d axes", MAX_RANK);
    sizes[*n] = graph_read_size(r);
    if (!sizes[(*n)++]) return false;
  } while (scan_char(&r->text, ','));
  return graph_read_expect(r, ']');
}

bool graph_read_role(GraphReader *r, Role *role) {
  if (!scan_word(&r->text, "as")) return true;
  for (int i = ROLE_NONE + 1; i < N_ROLES; i++) {
    if (!scan_word(&r->text, role_table[i].text)) continue;
    int64_t number = 0;
    if (role_table[i].is_numbered && (!scan_integer(&r->text, &number) || number < 0 || number > UINT32_MAX))
      return graph_read_fault(r, "expected the number of the %s", role_table[i].text);
    *role = (Role){(RoleKind)i, (uint32_t)number};
    return true;
  }
  return graph_read_fault(r, "expected a role: tokens, cache, encoded, logits, logsumexp or gradient");
}

Node *graph_read_operand(GraphReader *r) {
  const char *begin = r->text;
  int64_t number;
  if (!scan_char(&r->text, '%') || !scan_integer(&r->text, &number)) {
    graph_read_fault(r, "expected a node such as %%3");
    return NULL;
  }
  MapEntry *entry = map_find(&r->nodes, &number, sizeof number);
  if (entry) return entry->value;
  r->text = begin;
  graph_read_fault(r, "%%%lld is not defined before", (long long)number);
  return NULL;
}

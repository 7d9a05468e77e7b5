/* Fuzz target: any bytes as the text form of a graph.
 *
 * Reading must give a graph or messages, never both or neither. A graph that is read prints to a text that is read
 * back to the same text, and so does its copy; the verifier and the picture take whatever was read. */
#include <string.h>

#include "fuzz.h"
#include "draw/drawing.h"
#include "graph/graph.h"

static const char *printed(Arena *arena, Graph *graph) {
  StrBuf out = strbuf_new(arena);
  graph_print(&out, graph);
  return out.text;
}

/* Printing, copying and reading back must agree; the picture must not crash on any graph that reads. */
static void check(Arena *arena, Diag *diag, Graph *graph) {
  StrBuf picture = strbuf_new(arena);
  graph_verify(graph, diag);
  drawing_print(&picture, drawing_of_graph(arena, graph), 9);
  const char *once = printed(arena, graph);
  const char *copied = printed(arena, graph_clone(arena, graph));
  if (strcmp(once, copied) != 0) fuzz_fail("the copy differs", once, copied);
  Graph *again = graph_read(arena, diag, source_new(arena, "again.graph", once, (uint32_t)strlen(once)));
  if (!again) fuzz_fail("what was printed is not read", once, diag->messages.items[diag->messages.n - 1].text);
  const char *twice = printed(arena, again);
  if (strcmp(once, twice) != 0) fuzz_fail("printed differently the second time", once, twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Arena *arena = arena_create();
  Diag diag = diag_new(arena), more = diag_new(arena);
  const char *text = arena_strndup(arena, (const char *)bytes, size);
  Graph *graph = graph_read(arena, &diag, source_new(arena, "fuzz.graph", text, (uint32_t)size));
  if ((graph != NULL) == diag_has_errors(&diag)) fuzz_fail("neither a graph nor messages, or both", text, "");
  if (graph) check(arena, &more, graph);
  arena_destroy(arena);
  return 0;
}

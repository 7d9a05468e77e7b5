/* Fuzz target: any bytes as a .tfm file, from text to the fused graph, and to those of the incremental form.
 *
 * The elaborator must come back with a graph or with messages, never both or neither; every graph must satisfy the
 * verifier, before and after the passes; all messages must render. */
#include "diag/render.h"
#include "elaborate/elaborate.h"
#include "fuzz.h"
#include "incremental/incremental.h"

enum { MAX_NODES = 3000 }; /* of graphs that go through the passes: size alone finds nothing */

static void fail(Arena *arena, const char *what, const Diag *diag) {
  StrBuf out = strbuf_new(arena);
  render_text(&out, diag, false);
  fprintf(stderr, "%s\n%s", what, out.text);
  abort();
}

/* The verifier before, between and after the passes: a pass that breaks a rule is found at once. */
static void check_graph(Arena *arena, Diag *diag, Graph *graph) {
  if (!graph_verify(graph, diag)) fail(arena, "the elaborated graph breaks a rule", diag);
  if (graph_count(graph) > MAX_NODES) return;
  PassOptions options = {.level = 2, .verify_each = true};
  if (!passes_run(graph, diag, &options, NULL)) fail(arena, "the passes fail", diag);
  if (!graph_verify(graph, diag)) fail(arena, "the fused graph breaks a rule", diag);
}

/* Either there is an incremental form, or a reason says why not. */
static void check_incremental(Arena *arena, Diag *diag, const Graph *graph) {
  Incremental made = incremental_derive(arena, diag, graph, NULL);
  if (!made.step && !made.reason) fail(arena, "neither a step nor a reason", diag);
  if (made.step) check_graph(arena, diag, made.step);
  if (made.step && made.encoder) check_graph(arena, diag, made.encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Arena *arena = arena_create();
  Diag diag = diag_new(arena);
  Map names = map_new(arena);
  ParsedProgram *program = parse_text(arena, &names, &diag, "fuzz.tfm", (const char *)bytes, size);
  if (program) {
    ElaborateOptions options = {0};
    Graph *graph = elaborate(arena, &names, &diag, program, &options);
    if ((graph != NULL) == diag_has_errors(&diag)) fail(arena, "neither a graph nor messages, or both", &diag);
    if (graph && graph->generate_input && graph_count(graph) <= MAX_NODES) check_incremental(arena, &diag, graph);
    if (graph) check_graph(arena, &diag, graph);
  }
  StrBuf out = strbuf_new(arena);
  render_text(&out, &diag, true);
  render_json(&out, &diag);
  arena_destroy(arena);
  return 0;
}

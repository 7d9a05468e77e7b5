/* What tests of the compiler stand on; see compiled_graph.h. The arena, the names and the messages are those of the
 * test that runs, so helpers need no parameters for them and nothing outlives a test. */
#include "compiled_graph.h"

#include "diag/render.h"

Arena *arena;
Map interned;
Diag diag;

/* Criterion runs every test in a process of its own, so these globals are never shared. */
void setup(void) {
  arena = arena_create();
  interned = map_new(arena);
  diag = diag_new(arena);
}

void teardown(void) { arena_destroy(arena); }

// ---- messages ----

const char *fault(void) { return first_message(&diag); }

const char *messages(void) {
  StrBuf out = strbuf_new(arena);
  render_text(&out, &diag, false);
  return out.text;
}

// ---- graphs ----

Graph *elaborated(const char *text) {
  Graph *graph = elaborate_text(arena, &diag, text, &(ElaborateOptions){0});
  cr_assert_not_null(graph, "%s", fault());
  cr_assert_eq(diag.n_errors, 0, "%s", fault());
  return graph;
}

/* The passes rewrite the graph in place; it is returned so that calls can be nested. */
Graph *optimized(Graph *graph, int level) {
  cr_assert(passes_run(graph, &diag, &(PassOptions){.level = level}, NULL), "%s", fault());
  return graph;
}

Graph *graph_from_text(const char *text) {
  return graph_read(arena, &diag, source_new(arena, "test.graph", text, (uint32_t)strlen(text)));
}

/* A graph that a test writes down must be valid, or the test would show nothing about passes. */
Graph *read_graph(const char *text) {
  Graph *graph = graph_from_text(text);
  cr_assert_not_null(graph, "%s\n%s", fault(), text);
  cr_assert(graph_verify(graph, &diag), "%s\n%s", fault(), text);
  return graph;
}

const char *printed(Graph *graph) {
  StrBuf out = strbuf_new(arena);
  graph_print(&out, graph);
  return out.text;
}

// ---- plans ----

Plan *planned(Graph *graph, const char *target) {
  cr_assert(graph_verify(graph, &diag), "%s", fault());
  Plan *plan = plan_graph(arena, &diag, graph, target_find(target));
  cr_assert_not_null(plan, "%s", fault());
  return plan;
}

/* A program of the planner is a member of its plan, so the plan is found from its address. */
const Plan *plan_of_program(const tfm_program *program) {
  return (const Plan *)(const void *)((const char *)program - offsetof(Plan, program));
}

uint32_t count_steps(const tfm_program *program, tfm_step_kind kind) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < program->n_steps; i++) n += program->steps[i].kind == kind;
  return n;
}

/* Compares the text of a size, a polynomial of the run-time sizes. */
void expect_size(const tfm_program *program, tfm_size size, const char *text) {
  StrBuf out = strbuf_new(arena);
  plan_print_size(&out, plan_of_program(program), size);
  cr_assert_str_eq(out.text, text);
}

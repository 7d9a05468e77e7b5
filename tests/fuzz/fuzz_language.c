/* Fuzz target: any bytes as a .tfm file, from text to the fused graph, to those of the incremental form and of training,
 * to a plan, and to results of the reference interpreter.
 *
 * The elaborator must come back with a graph or with messages, never both or neither; every graph must satisfy the
 * verifier, before and after the passes; all messages must render. A run, before the passes and after them, and a plan
 * come back with results or with messages. Values are not compared: what mutations write magnifies rounding. */
#include "diag/render.h"
#include "elaborate/elaborate.h"
#include "fuzz.h"
#include "incremental/incremental.h"
#include "plan/plan.h"
#include "same_values.h"
#include "train/graphs.h"

enum {
  MAX_NODES = 3000, /* of graphs that go through the passes: size alone finds nothing */
  MAX_RUN_NODES = 500,
  MAX_ELEMENTS = 2000 /* of each value of a run, whose products then stay below 4 million steps */
};

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

/* Whether a run with small sizes is over soon. What a size makes negative would be refused before it is computed, but
 * inputs must be made. */
static bool is_small(const Graph *graph) {
  int64_t sizes[SIZE_MAX_SYMBOLS], dim;
  choose_sizes(graph, sizes);
  for (const Node *node = graph->first; node; node = node->next) {
    int64_t elements = 1;
    for (uint32_t i = 0; i < node->rank && elements <= MAX_ELEMENTS; i++) {
      if (!size_value(node->dims[i], sizes, &dim) || dim < 0 || dim > MAX_ELEMENTS) return false;
      elements *= dim;
    }
    if (elements > MAX_ELEMENTS) return false;
  }
  return graph_count(graph) <= MAX_RUN_NODES;
}

/* Runs may be refused: an id may lie outside of its table, a divisor may be 0, a requirement may not hold. */
static void check_run(Arena *arena, Graph *graph, const Graph *weights_of) {
  Diag diag = diag_new(arena);
  if (!is_small(graph)) return;
  const Tensor *outputs = random_outputs(arena, &diag, graph, weights_of);
  if ((outputs != NULL) == diag_has_errors(&diag)) fail(arena, "neither results nor messages, or both", &diag);
}

/* A plan may be refused too: the runtime has limits. Items of different sizes have plans of their own, made elsewhere. */
static void check_plan(Arena *arena, Graph *graph) {
  if (graph->ragged_batch >= 0) return;
  Diag diag = diag_new(arena);
  StrBuf out = strbuf_new(arena);
  const Plan *plan = plan_graph(arena, &diag, graph, target_find("x86-64-v3"));
  if ((plan != NULL) == diag_has_errors(&diag)) fail(arena, "neither a plan nor messages, or both", &diag);
  if (plan) plan_print(&out, plan);
}

/* Either there is an incremental form, or a reason says why not. */
static void check_incremental(Arena *arena, Diag *diag, const Graph *graph) {
  Incremental made = incremental_derive(arena, diag, graph, NULL);
  if (!made.step && !made.reason) fail(arena, "neither a step nor a reason", diag);
  if (made.step) check_graph(arena, diag, made.step);
  if (made.step && made.encoder) check_graph(arena, diag, made.encoder);
}

static void check_all(Arena *arena, Diag *diag, Graph *graph) {
  const Graph *written = graph_clone(arena, graph); /* knows the weights that the passes pack away */
  check_run(arena, graph, written);
  check_graph(arena, diag, graph);
  if (graph_count(graph) > MAX_NODES) return;
  check_run(arena, graph, written);
  check_plan(arena, graph);
}

/* Loss, gradients and divisors of a model with a train block. */
static void check_training(Arena *arena, Map *names, const ParsedProgram *program) {
  Diag diag = diag_new(arena);
  const ElaborateOptions options = {.is_training = true};
  Objective *objective = elaborate_objective(arena, names, &diag, program, &options);
  if (objective && diag_has_errors(&diag)) fail(arena, "both an objective and messages", &diag);
  if (!objective || !objective->name || graph_count(objective->graph) > MAX_NODES) return;
  const TrainGraphs *made = train_graphs(arena, &diag, objective, true);
  if ((made != NULL) == diag_has_errors(&diag)) fail(arena, "neither gradients nor messages, or both", &diag);
  if (!made) return;
  check_run(arena, made->gradients, made->gradients);
  check_graph(arena, &diag, made->gradients);
  if (made->counts) check_graph(arena, &diag, made->counts);
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
    if (graph) check_all(arena, &diag, graph);
    check_training(arena, &names, program);
  }
  StrBuf out = strbuf_new(arena);
  render_text(&out, &diag, true);
  render_json(&out, &diag);
  arena_destroy(arena);
  return 0;
}

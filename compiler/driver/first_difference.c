#include "driver/first_difference.h"

#include "driver/compare.h"

typedef struct Search {
  Session *session;
  Graph *graph;
  WeightSource *weights;
  const EvalInputs *inputs;
  VEC(uint32_t) candidates; /* ids of operations that compute something */
} Search;

/* The value of node `id` alone; false if it cannot be computed. */
static bool value_of(const Search *s, const EngineKind *kind, uint32_t id, Tensor *value) {
  Session quiet = *s->session; /* messages of the search are no messages of the command */
  quiet.diag = diag_new(s->session->arena);
  quiet.options.values[OPTION_REPORT].texts.n = quiet.options.values[OPTION_REQUIRE_FUSION].texts.n = 0;
  Graph *graph = graph_clone(s->session->arena, s->graph);
  Node *node = graph->first;
  while (node->id != id) node = node->next;
  graph->outputs.n = 0;
  vec_push(graph->arena, &graph->outputs, (GraphOutput){"value", node});
  Engine *engine = engine_create_kind(kind, &quiet, graph, s->weights);
  bool done = engine && engine_run(engine, s->inputs, value);
  if (done)
    value->data = arena_copy(s->session->arena, value->data, (size_t)tensor_elements(value) * dtype_bytes[value->dtype]);
  engine_destroy(engine);
  return done;
}

static bool differs(const Search *s, uint32_t id, Difference *difference, Tensor *got, Tensor *wanted) {
  return value_of(s, &engine_reference, id, wanted) && value_of(s, &engine_native, id, got) &&
         !tensors_agree(got, wanted, tolerance_of(&s->session->options), difference);
}

static void list_candidates(Search *s) {
  graph_renumber(s->graph);
  for (const Node *node = s->graph->first; node; node = node->next)
    if (op_table[node->op].category != CATEGORY_SOURCE && !node_is_static(node))
      vec_push(s->session->arena, &s->candidates, node->id);
}

void report_first_difference(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs) {
  Search s = {.session = session, .graph = graph, .weights = weights, .inputs = inputs};
  list_candidates(&s);
  Difference difference, found = {0};
  Tensor got, wanted, found_got, found_wanted;
  size_t low = 0, high = s.candidates.n; /* those before `low` agree, `high` differs */
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (differs(&s, s.candidates.items[middle], &difference, &got, &wanted)) {
      high = middle;
      found = difference;
      found_got = got;
      found_wanted = wanted;
    } else {
      low = middle + 1;
    }
  }
  if (!found.count && !found.shape) return;
  const Node *node = graph->first;
  while (node->id != s.candidates.items[high]) node = node->next;
  StrBuf text = strbuf_new(session->arena);
  difference_print(&text, &found, &found_got, &found_wanted);
  diag_note(&session->diag, node->origin.span, "the first operation that differs is %s%s%s: %s", op_table[node->op].name,
            *node->origin.path ? " in " : "", node->origin.path, text.text);
}

/* tfmc check: what a model takes, gives and needs; with --weights, whether a file has it. */
#include "driver/commands/commands.h"
#include "driver/host.h"
#include "driver/model.h"
#include "driver/passes_options.h"

static void print_tensor(StrBuf *out, const Graph *graph, const char *name, const Node *node) {
  strbuf_printf(out, "  %-24s ", name);
  node_print_shape(out, graph->sizes, node);
  strbuf_add_char(out, '\n');
}

static void print_ragged(StrBuf *out, const Graph *graph) {
  for (uint32_t i = 0; i < graph->sizes->n_symbols; i++)
    if (graph->ragged[i])
      strbuf_printf(out, "  %s.lengths: i32[%s], may be left out\n", graph->sizes->symbols[i],
                    graph->sizes->symbols[graph->ragged_batch]);
}

static int64_t static_elements(const Node *node) {
  int64_t elements = 1, dim = 0;
  for (uint32_t i = 0; i < node->rank; i++) elements *= size_is_const(node->dims[i], &dim) ? dim : 1;
  return elements;
}

static void print_weights(StrBuf *out, const Graph *graph, const NodeList *weights, bool all) {
  int64_t parameters = 0;
  for (size_t i = 0; i < weights->nodes.n; i++) parameters += static_elements(weights->nodes.items[i]);
  strbuf_printf(out, "weights: %zu tensors, %lld numbers\n", weights->nodes.n, (long long)parameters);
  for (size_t i = 0; all && i < weights->nodes.n; i++)
    print_tensor(out, graph, weights->nodes.items[i]->attr.name, weights->nodes.items[i]);
}

static void print_model(StrBuf *out, const Graph *graph, const NodeList *weights, bool all) {
  strbuf_printf(out, "model %s\ninputs:\n", graph->name);
  for (size_t i = 0; i < graph->inputs.n; i++)
    print_tensor(out, graph, graph->inputs.items[i]->attr.name, graph->inputs.items[i]);
  print_ragged(out, graph);
  strbuf_add(out, "outputs:\n");
  for (size_t i = 0; i < graph->outputs.n; i++)
    print_tensor(out, graph, graph->outputs.items[i].name, graph->outputs.items[i].node);
  print_weights(out, graph, weights, all);
}

static void check_file(Session *session, Graph *graph, StrBuf *out) {
  const char *path = option_text(&session->options, OPTION_WEIGHTS, NULL);
  WeightSet *set = path ? weight_set_open(session->arena, &session->diag, path) : NULL;
  if (!set) return;
  const WeightCheck check = session_weight_check(session);
  size_t unused = weight_set_check(&check, graph, set);
  if (!diag_has_errors(&session->diag)) {
    strbuf_printf(out, "%s: has all of them", path);
    if (unused) strbuf_printf(out, ", and %zu tensors that the model does not use", unused);
    strbuf_add_char(out, '\n');
  }
  weight_set_close(set);
}

void command_check(Session *session) {
  if (option_given(&session->options, OPTION_MARCH) && !host_choose_target(session, false)) return;
  Graph *graph = model_load(session);
  if (!graph) return;
  NodeList weights = needed_weights(session->arena, graph);
  StrBuf text = strbuf_new(session->arena);
  print_model(&text, graph, &weights, option_given(&session->options, OPTION_VERBOSE));
  check_file(session, graph, &text);
  if (!option_given(&session->options, OPTION_QUIET)) session_print(&text);
}

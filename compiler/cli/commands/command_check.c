/* tfmc check: what a model takes, gives and needs.
 *
 * In: a .tfm file or a library. Out: text, or with --json an object. Nothing is executed. What every run of a model
 * must meet is shown, with a warning for each condition that leaves a run-time size one value, unless the model states
 * it by `require`.
 *
 * A condition binds if it is an equality: of a size and a number, or of two sizes. What compares only from one side
 * ("time <= 512") leaves sizes their freedom and is no reason for a warning, nor is what is written as a requirement.
 * `a == b` and `b == a` are one condition, wherever they come from. */
#include "cli/commands/commands.h"

#include <string.h>

#include "cli/cli_model.h"
#include "train/graphs.h"
#include "weights/adapter.h"

// ---- conditions of a model ----

static const char *place_of(Arena *arena, const Origin *origin) {
  const SrcSpan span = origin_place(origin);
  if (!span.source) return "-";
  return arena_printf(arena, "%s:%u", text_shown(arena, span.source->path), source_place(span.source, span.begin).line);
}

/* A condition that is needed in several places has a line for each of them, but not for each module of the same
 * line. */
static void conditions_print(StrBuf *out, const Graph *graph) {
  Map seen = map_new(out->arena);
  if (graph->checks.n) strbuf_add(out, "conditions of every run:\n");
  for (size_t i = 0; i < graph->checks.n; i++) {
    const Check *check = &graph->checks.items[i];
    StrBuf line = strbuf_new(out->arena);
    cond_print(&line, graph->sizes, check->condition);
    const char *text = arena_printf(out->arena, "  %-24s %s\n", line.text, place_of(out->arena, &check->origin));
    if (map_has(&seen, text)) continue;
    map_put(&seen, text, NULL);
    strbuf_add(out, text);
  }
}

/* As many as DIAG_MAX_ERRORS; warnings have no limit of their own in Diag. */
enum { MAX_WARNINGS = 20 };

/* For each check left - right, which is 0 in every run; NULL: it is no equality, or too large to say. */
static const Size **zeros_of(Arena *arena, const Graph *graph) {
  const Size **zeros = ARENA_ARRAY(arena, const Size *, graph->checks.n);
  for (size_t i = 0; i < graph->checks.n; i++) {
    const Cond *c = graph->checks.items[i].condition;
    if (c->kind == COND_COMPARE && c->op == OP_EQ) zeros[i] = size_sub(graph->sizes, c->left, c->right);
  }
  return zeros;
}

/* Whether the model states the condition, in either direction, or a warning about it stands already. */
static bool is_known(const Graph *graph, const Size *const *zeros, size_t index) {
  const Size *negative = size_sub(graph->sizes, size_const(graph->sizes, 0), zeros[index]);
  for (size_t i = 0; i < graph->checks.n; i++) {
    bool is_same = zeros[i] && (zeros[i] == zeros[index] || zeros[i] == negative);
    if (is_same && (i < index || graph->checks.items[i].is_stated)) return true;
  }
  return false;
}

/* With a number on the right, where readers expect it. */
static const char *equation(Arena *arena, const Graph *graph, const Cond *condition) {
  StrBuf out = strbuf_new(arena);
  Cond turned = *condition;
  turned.left = condition->right;
  turned.right = condition->left;
  cond_print(&out, graph->sizes, size_is_const(condition->left, NULL) ? &turned : condition);
  return out.text;
}

/* What the run would say, with the sizes as the model calls them. */
static const char *message_of(Arena *arena, const Graph *graph, const Check *check) {
  StrBuf out = strbuf_new(arena);
  for (size_t i = 0; i < check->message.n; i++) {
    const CheckPart *part = &check->message.items[i];
    if (part->text) strbuf_add(&out, part->text);
    if (part->size) size_print(&out, graph->sizes, part->size);
  }
  return out.text;
}

static void conditions_warn(Diag *diag, const Graph *graph) {
  Arena *arena = diag->arena;
  const Size **zeros = zeros_of(arena, graph);
  unsigned n = 0;
  for (size_t i = 0; i < graph->checks.n && n < MAX_WARNINGS; i++) {
    const Check *check = &graph->checks.items[i];
    if (!zeros[i] || is_known(graph, zeros, i)) continue;
    n++;
    diag_warning(diag, origin_place(&check->origin), DIAG_SIZE_BOUND, "every run needs %s; otherwise %s",
                 equation(arena, graph, check->condition), message_of(arena, graph, check));
    origin_note_calls(diag, &check->origin);
  }
}

// ---- tfmc check: a model ----

static void print_tensor(StrBuf *out, const Graph *graph, const char *name, const Node *node) {
  strbuf_printf(out, "  %-24s ", text_shown(out->arena, name));
  node_print_shape(out, graph->sizes, node);
  if (node->op == OP_INPUT && node->attr.has_default) {
    strbuf_add(out, ", left out ");
    node_print_value(out, node);
    strbuf_add(out, " everywhere");
  }
  if (node->op == OP_INPUT && node->attr.range_text)
    strbuf_printf(out, ", elements in [%d, %lld)", node->attr.least, (long long)node->attr.most + 1);
  strbuf_add_char(out, '\n');
}

/* Each ragged size has a second input with the lengths of the items. */
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

static void print_needed_weights(StrBuf *out, const Graph *graph, const NodeList *weights, bool all) {
  int64_t parameters = 0;
  for (size_t i = 0; i < weights->nodes.n; i++) parameters += static_elements(weights->nodes.items[i]);
  strbuf_printf(out, "weights: %zu tensor%s, %lld numbers\n", weights->nodes.n,
                weights->nodes.n == 1 ? "" : "s", (long long)parameters);
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
  conditions_print(out, graph);
  print_needed_weights(out, graph, weights, all);
}

/* The messages about what does not fit come from the same function as before a run. */
static void check_file(Session *session, Graph *graph, StrBuf *out) {
  const char *path = option_text(&session->options, OPTION_WEIGHTS, NULL);
  WeightSet *set = path ? weight_set_open(session->arena, &session->diag, path) : NULL;
  if (!set) return;
  adapter_take_apart(session->arena, &session->diag, set, graph);
  const WeightCheck check = session_weight_check(session);
  size_t unused = weight_set_check(&check, graph, set);
  if (!session->library) weight_set_note_types(set, graph);
  if (!diag_has_errors(&session->diag)) {
    strbuf_printf(out, "%s: has all of them", text_shown(session->arena, path));
    if (unused) strbuf_printf(out, ", and %zu tensors that the model does not use", unused);
    strbuf_add_char(out, '\n');
  }
  weight_set_close(set);
}

/* Differentiates too, without running anything: what cannot be trained is refused here. */
static void check_objective(Session *session, StrBuf *out) {
  Objective *objective = model_objective(session, true);
  const TrainGraphs *graphs = objective ? train_graphs(session->arena, &session->diag, objective, true) : NULL;
  if (graphs) train_graphs_print(out, graphs);
}

/* -march is checked for its spelling alone, so that a command line for another machine can be tried here. */
void command_check(Session *session) {
  if (option_given(&session->options, OPTION_MARCH) && !host_choose_target(session, false)) return;
  Graph *graph = model_load(session);
  if (!graph) return;
  NodeList weights = needed_weights(session->arena, graph);
  StrBuf text = strbuf_new(session->arena);
  print_model(&text, graph, &weights, option_given(&session->options, OPTION_VERBOSE));
  conditions_warn(&session->diag, graph);
  check_file(session, graph, &text);
  if (!session->library) check_objective(session, &text);
  passes_run(graph, &session->diag, &(PassOptions){.level = 2, .stop_after = "fuse-attention"}, NULL);
  passes_report_numbers(&text, graph); /* of products and attentions as they are found, not as they are written */
  if (!option_given(&session->options, OPTION_QUIET)) session_print(&text);
}

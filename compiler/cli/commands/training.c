/* In: the options of training. Out: a trainer with its weights. See training.h. */
#include "cli/commands/training.h"

#include <string.h>

#include "base/hash.h"
#include "cli/model.h"
#include "graph/build.h"

// ---- weights that begin anew ----

/* Whether the weight begins anew, whatever the file has: a --new names it. */
static bool is_new(const Session *session, const char *path) {
  const OptionValues *values = &session->options.values[OPTION_NEW];
  Patterns patterns = {0};
  for (size_t i = 0; i < values->texts.n; i++) vec_push(session->arena, &patterns.texts, values->texts.items[i]);
  return patterns_match(&patterns, path);
}

/* The objective's graph, in which weights that begin anew are none: the file need not have them. */
static Graph *without_new(Session *session, const Graph *given) {
  Graph *graph = graph_clone(session->arena, given);
  for (Node *node = graph->first, *next; node; node = next) {
    next = node->next;
    if (node->op != OP_WEIGHT || !is_new(session, node->attr.name)) continue;
    Builder builder = {.graph = graph, .before = node, .origin = node->origin};
    Node *input = build_input(&builder, arena_printf(session->arena, "new.%s", node->attr.name), DTYPE_F32, node->rank,
                              (const Size *const *)node->dims);
    graph_replace_uses(graph, node, input);
    graph_delete(graph, node);
  }
  return graph;
}

/* Each --new must name something. */
static bool check_new(Session *session, const TrainGraphs *graphs) {
  const OptionValues *values = &session->options.values[OPTION_NEW];
  for (size_t i = 0; i < values->texts.n; i++) {
    Patterns pattern = {0};
    size_t k = 0;
    vec_push(session->arena, &pattern.texts, values->texts.items[i]);
    while (k < graphs->parameters.n && !patterns_match(&pattern, graphs->parameters.items[k].path)) k++;
    if (k == graphs->parameters.n)
      option_error(&session->diag, OPTION_NEW, "no weight of the objective is called \"%s\"", values->texts.items[i]);
  }
  return !diag_has_errors(&session->diag);
}

// ---- weights, trainer ----

/* From the file, or initial values. */
static bool fill_weights(Training *t, WeightSource *weights) {
  for (uint32_t i = 0; i < t->graphs->parameters.n; i++) {
    const Parameter *p = &t->graphs->parameters.items[i];
    if (weights && !is_new(t->session, p->path)) continue;
    trainer_draw(t->trainer, i);
  }
  if (diag_has_errors(&t->session->diag)) return false;
  for (uint32_t i = 0; weights && i < t->graphs->parameters.n; i++) {
    const Parameter *p = &t->graphs->parameters.items[i];
    if (is_new(t->session, p->path)) continue;
    const Tensor *tensor = weight_source_get(weights, p->path);
    if (!tensor) return false;
    if (p->elements) memcpy(trainer_weight(t->trainer, i), tensor->data, (size_t)p->elements * sizeof(float));
  }
  return true;
}

/* The weights are opened before the graphs are made, while the objective's has WEIGHT nodes. */
bool training_begin(Training *t, Session *session, bool is_training, bool fills) {
  const Options *options = &session->options;
  *t = (Training){.session = session};
  Objective *objective = training_objective(session, is_training);
  if (!objective) return false;
  const bool has_file = fills && (option_given(options, OPTION_WEIGHTS) || !is_training);
  Graph *needing = option_given(options, OPTION_NEW) ? without_new(session, objective->graph) : objective->graph;
  WeightSource *weights = has_file ? session_weights(session, needing) : NULL;
  if (has_file && !weights) return false;
  StrBuf text = strbuf_new(session->arena);
  graph_print(&text, objective->graph);
  t->model = hash_bytes(HASH_BEGIN, text.text, text.length);
  t->graphs = train_graphs(session->arena, &session->diag, objective, is_training);
  if (t->graphs && check_new(session, t->graphs)) {
    const TrainerOptions with = {.kind = session_engine_kind(session),
                                 .settings = engine_settings(session),
                                 .seed = option_count(options, OPTION_SEED, 0)};
    t->graph = graph_clone(session->arena, t->graphs->gradients);
    t->n_inputs = t->graphs->n_inputs;
    t->trainer = trainer_new(&with, t->graphs);
  }
  bool good = t->trainer && (!fills || fill_weights(t, weights));
  weight_source_close(weights);
  return good;
}

/* In: the options of a command that trains. Out: a trainer with weights. See cli_training.h. */
#include "cli/cli_training.h"

#include <string.h>

#include "elaborate/adapters.h"
#include "graph/build.h"
#include "weights/adapter.h"

// ---- weights that begin anew ----

/* Whether the weight begins anew, whatever the file has: a --new names it, or it is an adapter's and the file has no
 * adapter. */
static bool is_new(const Session *session, const Adapters *begun, const char *path) {
  if (adapters_have(begun, path)) return true;
  const OptionValues *values = &session->options.values[OPTION_NEW];
  Patterns patterns = {0};
  for (size_t i = 0; i < values->texts.n; i++) vec_push(session->arena, &patterns.texts, values->texts.items[i]);
  return patterns_match(&patterns, path);
}

/* The objective's graph, in which weights that begin anew are none: the file need not have them. */
static Graph *without_new(Session *session, const Adapters *begun, const Graph *given) {
  Graph *graph = graph_clone(session->arena, given);
  for (Node *node = graph->first, *next; node; node = next) {
    next = node->next;
    if (node->op != OP_WEIGHT || !is_new(session, begun, node->attr.name)) continue;
    Builder builder = {.graph = graph, .before = node, .origin = node->origin};
    Node *input = build_input(&builder, arena_printf(session->arena, "new.%s", node->attr.name), DTYPE_F32, node->rank,
                              (const Size *const *)node->dims);
    graph_replace_uses(graph, node, input);
    graph_delete(graph, node);
  }
  return graph;
}

/* The adapters of a model whose file of weights, such as a checkpoint that they shall change, has none of them. NULL:
 * there are none, or the file has some, and then it must have all. False after an error. */
static bool find_begun(Session *session, const Objective *objective, const Adapters **begun) {
  const Graph *graph = objective->graph;
  const char *path = option_text(&session->options, OPTION_WEIGHTS, NULL);
  *begun = NULL;
  if (!objective->adapters || !path) return true;
  WeightSet *set = weight_set_open(session->arena, &session->diag, path);
  if (!set) return false;
  const bool good = adapter_take_apart(session->arena, &session->diag, set, graph);
  size_t i = 0;
  while (i < graph->adapters.n && !weight_set_find(set, graph->adapters.items[i].a) &&
         !weight_set_find(set, graph->adapters.items[i].b))
    i++;
  if (i == graph->adapters.n) *begun = objective->adapters;
  weight_set_close(set);
  return good;
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

/* Piece by piece: the numbers are rounded to what the trainer keeps them in. */
static bool read_weight(const Training *t, uint32_t i, const WeightEntry *entry) {
  enum { PIECE = 1 << 14 };
  const int64_t n = t->graphs->parameters.items[i].elements;
  Arena *scratch = arena_create();
  float *piece = ARENA_ARRAY(scratch, float, PIECE);
  bool good = true;
  for (int64_t at = 0; at < n && good; at += PIECE) {
    const int64_t some = n - at < PIECE ? n - at : PIECE;
    good = weight_entry_read_part(entry, &t->session->diag, at, some, piece);
    if (good) tfm_trainer_set(trainer_made(t->trainer), i, at, some, piece);
  }
  arena_destroy(scratch);
  return good;
}

/* Of a weight that only a run of the model needs: from the file, if it is there. */
static bool read_unreached(const Training *t, const WeightSource *weights, uint32_t i) {
  const Parameter *p = &t->graphs->parameters.items[i];
  const WeightEntry *entry = weights->set ? weight_set_find(weights->set, p->path) : NULL;
  if (!entry || !weight_entry_is_readable(entry)) return trainer_draw(t->trainer, i);
  bool fits = entry->tensor->rank == p->rank;
  for (uint32_t axis = 0; axis < p->rank && fits; axis++) fits = entry->tensor->dims[axis] == p->dims[axis];
  if (fits) return read_weight(t, i, entry);
  diag_error_at(&t->session->diag, entry->file->file.path, DIAG_WEIGHT_SHAPE,
                "tensor \"%s\" does not have the shape of the model's weight", p->path);
  return false;
}

static bool fill_weight(const Training *t, WeightSource *weights, uint32_t i) {
  const Parameter *p = &t->graphs->parameters.items[i];
  if (!weights || is_new(t->session, t->begun, p->path)) return trainer_draw(t->trainer, i);
  if (!p->is_reached) return read_unreached(t, weights, i);
  const WeightEntry *entry = weights->set ? weight_set_find(weights->set, p->path) : NULL;
  if (entry) return read_weight(t, i, entry);
  const Tensor *tensor = weight_source_get(weights, p->path);
  if (tensor) trainer_set(t->trainer, i, tensor->data);
  return tensor != NULL;
}

const uint8_t *training_drawn(const Training *t) {
  const size_t n = t->graphs->parameters.n;
  uint8_t *drawn = ARENA_ARRAY(t->session->arena, uint8_t, n + 1);
  bool any = false;
  for (size_t i = 0; i < n; i++) {
    drawn[i] = is_new(t->session, t->begun, t->graphs->parameters.items[i].path);
    any |= drawn[i] != 0;
  }
  return any ? drawn : NULL;
}

/* From the file, or initial values; every one that has neither is named. An evaluation needs those that it reaches. */
static bool fill_weights(Training *t, WeightSource *weights, bool is_training) {
  bool good = true;
  for (uint32_t i = 0; i < t->graphs->parameters.n; i++)
    if (is_training || t->graphs->parameters.items[i].is_reached) good = fill_weight(t, weights, i) && good;
  tfm_trainer_has_base(trainer_made(t->trainer));
  return good;
}

/* What is frozen may stay in the 16 bits of the file, whoever fills it in. */
static bool note_types(Session *session, const WeightSource *weights, Graph *graph) {
  const char *path = option_text(&session->options, OPTION_WEIGHTS, NULL);
  WeightSet *set = weights ? weights->set : path ? weight_set_open(session->arena, &session->diag, path) : NULL;
  if (!weights && path && (!set || !adapter_take_apart(session->arena, &session->diag, set, graph))) return false;
  weight_set_note_types(set, graph);
  if (!weights) weight_set_close(set);
  return true;
}

bool training_begin(Training *t, Session *session, const TrainingWish *wish) {
  const Options *options = &session->options;
  *t = (Training){.session = session};
  const bool is_training = wish->is_training;
  Objective *objective = training_objective(session, is_training);
  if (!objective) return false;
  const bool has_base = objective->adapters || option_given(options, OPTION_WEIGHTS);
  const bool fills = wish->fills && (!wish->resumes || has_base);
  const bool has_file = fills && (option_given(options, OPTION_WEIGHTS) || !is_training);
  if (has_file && is_training && !find_begun(session, objective, &t->begun)) return false;
  const bool begins = option_given(options, OPTION_NEW) || t->begun;
  Graph *needing = begins ? without_new(session, t->begun, objective->graph) : objective->graph;
  WeightSource *weights = has_file ? session_weights(session, needing) : NULL;
  if (has_file && !weights) return false;
  if (!note_types(session, weights, objective->graph)) return false;
  t->graphs = train_graphs(session->arena, &session->diag, objective, is_training);
  if (t->graphs && check_new(session, t->graphs)) {
    const TrainerOptions with = {.kind = wish->only_weights ? &engine_reference : session_engine_kind(session),
                                 .settings = engine_settings(session),
                                 .seed = option_count(options, OPTION_SEED, 0),
                                 .shards = is_training ? (int32_t)option_count(options, OPTION_SHARDS, 1) : 1};
    t->graph = graph_clone(session->arena, t->graphs->gradients);
    t->n_inputs = t->graphs->n_inputs;
    t->trainer = trainer_new(&with, t->graphs);
  }
  bool good = t->trainer && (!fills || fill_weights(t, weights, is_training));
  weight_source_close(weights);
  return good;
}

/* The objective is elaborated twice: with dropout, to be differentiated, and without. */
bool training_of_library(Session *session, TrainingModel *model) {
  const CompileRequest request = compile_request(session, NULL);
  TrainGraphs *made[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) {
    Objective *objective = training_objective(session, i == 0);
    if (objective && !note_types(session, NULL, objective->graph)) return false;
    made[i] = objective ? train_graphs(session->arena, &session->diag, objective, i == 0) : NULL;
    if (!made[i]) return false;
  }
  return training_model_make(&request, made[0], made[1], model);
}

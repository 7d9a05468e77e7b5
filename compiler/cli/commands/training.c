/* What `tfmc train` and `tfmc evaluate` share, and `tfmc train --data`: from files of items to a folder with trained
 * weights.
 *
 * In: a model with a train block, data, perhaps weights to begin with, and how the data are cut and how long it goes
 * on. Out: a trainer; the folder of --out, as train/course.h describes it, or with --steps=0 only what the data make.
 * Refuses options that do not fit together before anything is read. */
#include "cli/commands/training.h"

#include <string.h>

#include "base/hash.h"
#include "cli/model.h"
#include "graph/build.h"
#include "train/course.h"

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

/* Of a weight that only a run of the model needs: from the file, if it is there. */
static bool read_unreached(const Training *t, const WeightSource *weights, uint32_t i) {
  const Parameter *p = &t->graphs->parameters.items[i];
  const WeightEntry *entry = weights->set ? weight_set_find(weights->set, p->path) : NULL;
  if (!entry || !weight_entry_is_readable(entry)) return trainer_draw(t->trainer, i);
  bool fits = entry->tensor->rank == p->rank;
  for (uint32_t axis = 0; axis < p->rank && fits; axis++) fits = entry->tensor->dims[axis] == p->dims[axis];
  if (fits) return weight_entry_read_part(entry, &t->session->diag, 0, p->elements, trainer_weight(t->trainer, i));
  diag_error_at(&t->session->diag, entry->file->file.path, DIAG_WEIGHT_SHAPE,
                "tensor \"%s\" does not have the shape of the model's weight", p->path);
  return false;
}

static bool fill_weight(const Training *t, WeightSource *weights, uint32_t i) {
  const Parameter *p = &t->graphs->parameters.items[i];
  if (!weights || is_new(t->session, p->path)) return trainer_draw(t->trainer, i);
  if (!p->is_reached) return read_unreached(t, weights, i);
  const Tensor *tensor = weight_source_get(weights, p->path);
  if (tensor && p->elements) memcpy(trainer_weight(t->trainer, i), tensor->data, (size_t)p->elements * sizeof(float));
  return tensor != NULL;
}

/* From the file, or initial values; every one that has neither is named. An evaluation needs those that it reaches. */
static bool fill_weights(Training *t, WeightSource *weights, bool is_training) {
  bool good = true;
  for (uint32_t i = 0; i < t->graphs->parameters.n; i++)
    if (is_training || t->graphs->parameters.items[i].is_reached) good = fill_weight(t, weights, i) && good;
  return good;
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
  bool good = t->trainer && (!fills || fill_weights(t, weights, is_training));
  weight_source_close(weights);
  return good;
}

// ---- numbers of the command line ----

enum { BATCH_TOKENS = 4096, POOL = 100, LOG_EVERY = 50, KEEP = 3 };

static int64_t count(const Session *session, Option option, int64_t otherwise) {
  return (int64_t)option_count(&session->options, option, (uint64_t)otherwise);
}

static bool given(const Session *session, Option option) { return option_given(&session->options, option); }

// ---- data ----

static OrderRequest order_request(const Session *session) {
  const int64_t items = count(session, OPTION_BATCH_ITEMS, 0);
  return (OrderRequest){.batch_items = items,
                        .batch_tokens = items ? 0 : count(session, OPTION_BATCH_TOKENS, BATCH_TOKENS),
                        .pool = count(session, OPTION_POOL, POOL),
                        .seed = option_count(&session->options, OPTION_SEED, 0)};
}

static DataSet *open_data(const Training *t, Option option) {
  Session *session = t->session;
  const OptionValues *values = &session->options.values[option];
  const DataRequest request = {.arena = session->arena,
                               .diag = &session->diag,
                               .graph = t->graph,
                               .n_inputs = t->n_inputs,
                               .batch = t->graphs->objective->batch,
                               .paths = values->texts.items,
                               .n_paths = values->texts.n,
                               .window = count(session, OPTION_WINDOW, 0),
                               .most_tokens = order_request(session).batch_tokens,
                               .skips_long = given(session, OPTION_SKIP_LONG)};
  return data_open(&request);
}

bool batches_of_data(Training *t, EvalInputs **batches, uint32_t *n) {
  Session *session = t->session;
  const OrderRequest request = order_request(session);
  DataSet *data = open_data(t, OPTION_DATA);
  if (!data) return false;
  Order *order = order_of_file(session->arena, data, &request);
  bool good = true;
  *n = (uint32_t)order->batches.n;
  *batches = ARENA_ARRAY(session->arena, EvalInputs, *n);
  for (uint32_t i = 0; i < *n && good; i++) {
    const Batch batch = order->batches.items[i];
    good = data_batch(data, session->arena, order->items + batch.first, batch.n, &(*batches)[i]);
  }
  data_close(data);
  return good;
}

// ---- options ----

static bool refuse(Session *session, Option option, const char *why) {
  option_error(&session->diag, option, "%s", why);
  return false;
}

static bool check_options(Session *session) {
  const bool only_looks = given(session, OPTION_STEPS) && !count(session, OPTION_STEPS, 0);
  const Option others[] = {OPTION_BATCHES, OPTION_ACCUMULATE, OPTION_GRADIENTS, OPTION_OUTPUT};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (given(session, others[i]))
      return refuse(session, others[i], "it does not go with --data; --out names a folder");
  if (given(session, OPTION_STEPS) && given(session, OPTION_EPOCHS))
    return refuse(session, OPTION_EPOCHS, "give --steps or --epochs, not both");
  if (given(session, OPTION_BATCH_TOKENS) && given(session, OPTION_BATCH_ITEMS))
    return refuse(session, OPTION_BATCH_ITEMS, "give --batch-tokens or --batch-items, not both");
  if (given(session, OPTION_VALID_EVERY) && !given(session, OPTION_VALID))
    return refuse(session, OPTION_VALID_EVERY, "there is nothing to validate on: --valid names the data");
  if (given(session, OPTION_EARLY_STOPPING) && !given(session, OPTION_VALID))
    return refuse(session, OPTION_EARLY_STOPPING, "there is nothing to validate on: --valid names the data");
  if (given(session, OPTION_RESUME) && given(session, OPTION_WEIGHTS))
    return refuse(session, OPTION_WEIGHTS, "a run that is resumed has its weights");
  if (given(session, OPTION_NEW) && !given(session, OPTION_WEIGHTS))
    return refuse(session, OPTION_NEW, "without --weights all weights are new");
  if (!given(session, OPTION_OUT) && !only_looks)
    return refuse(session, OPTION_OUT, "the folder for checkpoints, weights and the log is needed");
  return true;
}

// ---- the run ----

static bool fill_request(const Training *t, CourseRequest *request) {
  Session *session = t->session;
  const int64_t planned = (int64_t)t->graphs->objective->settings.steps;
  *request = (CourseRequest){.arena = session->arena,
                             .diag = &session->diag,
                             .trainer = t->trainer,
                             .graphs = t->graphs,
                             .order = order_request(session),
                             .part_tokens = count(session, OPTION_PART_TOKENS, 0),
                             .steps = count(session, OPTION_STEPS, given(session, OPTION_EPOCHS) ? 0 : planned),
                             .epochs = count(session, OPTION_EPOCHS, 0),
                             .valid_every = count(session, OPTION_VALID_EVERY, 0),
                             .save_every = count(session, OPTION_SAVE_EVERY, count(session, OPTION_VALID_EVERY, 0)),
                             .log_every = count(session, OPTION_LOG_EVERY, LOG_EVERY),
                             .keep = count(session, OPTION_KEEP, KEEP),
                             .patience = count(session, OPTION_EARLY_STOPPING, 0),
                             .folder = option_text(&session->options, OPTION_OUT, NULL),
                             .resumes = given(session, OPTION_RESUME),
                             .is_quiet = given(session, OPTION_QUIET),
                             .model = t->model};
  if (request->steps || request->epochs || given(session, OPTION_STEPS)) return true;
  return refuse(session, OPTION_STEPS, "how long? Give --steps or --epochs, or `steps` in the train block");
}

/* The objective without dropout, for validation. False after an error. */
static bool add_judge(Training *judge, CourseRequest *request, DataSet **valid) {
  Session *session = judge->session;
  if (!given(session, OPTION_VALID)) return true;
  if (!training_begin(judge, session, false, false)) return false;
  *valid = open_data(judge, OPTION_VALID);
  request->judge = judge->trainer;
  request->judge_graphs = judge->graphs;
  request->valid = *valid;
  return *valid != NULL;
}

static void describe(const CourseRequest *request) {
  StrBuf text = strbuf_new(request->arena);
  course_describe(&text, request);
  if (!request->is_quiet) session_print(&text);
}

/* 128 and the number of the signal, as a shell gives it for a process that the signal killed. */
enum { EXIT_BY_SIGNAL = 128 };

void train_on_data(Session *session) {
  Training t = {0}, judge = {.session = session};
  CourseRequest request = {0};
  int signal = 0;
  if (!check_options(session)) return;
  const bool resumes = given(session, OPTION_RESUME);
  DataSet *data = NULL, *valid = NULL;
  bool good = training_begin(&t, session, true, !resumes) && fill_request(&t, &request);
  if (good) data = open_data(&t, OPTION_DATA);
  request.data = data;
  good = good && data && add_judge(&judge, &request, &valid);
  if (good) describe(&request);
  if (good && (request.steps || request.epochs) && course_run(&request, &signal) && signal)
    session->diag.exit_code = EXIT_BY_SIGNAL + signal;
  data_close(data);
  data_close(valid);
  trainer_free(judge.trainer);
  trainer_free(t.trainer);
}

/* The life of a trainer: <model>_trainer_new, tfm_trainer_open, states that it begins with and leaves behind, and what
 * can be read of it.
 *
 * In: a tfm_training, or the path of a library that has one; what runs its graphs, a tfm_trainer_options of any
 * version. Out: a trainer, whose weights are zeroes until they are drawn or filled in. Refused: settings out of range,
 * weights without an initial value, a state of another model, a library that does not train or is of another version; a
 * weight that the model does not have. The trainer, its arrays and its blocks are one block of memory. */
#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tfm/abi/checkpoint.h"
#include "base/error.h"
#include "library/exports.h"
#include "library/open.h"
#include "train/trainer_parts.h"

// ---- making ----

static uint32_t most_inputs(const tfm_training *training) {
  const tfm_train_graph *graphs[] = {&training->step.tops, &training->step.bottoms, &training->evaluation.tops,
                                     &training->evaluation.bottoms};
  uint32_t most = 0;
  for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
    if (graphs[i]->n_inputs > most) most = graphs[i]->n_inputs;
  return most;
}

static uint32_t most_outputs(const tfm_training *training) {
  return training->step.tops.n_outputs + training->evaluation.tops.n_outputs + training->step.bottoms.n_outputs +
         training->evaluation.bottoms.n_outputs;
}

static uint32_t most_steps(const tfm_training *training) {
  const uint32_t n = training->step.n_steps, more = training->evaluation.n_steps;
  return n > more ? n : more;
}

/* What the optimizer keeps of each weight. A trainer that only evaluates has nothing but weights. */
static bool needs(const tfm_trainer *t, tfm_train_tensor which) {
  const bool is_sgd = t->training->optimizer == TFM_OPTIMIZER_SGD;
  if (which == TFM_TENSOR_WEIGHT) return true;
  if (!t->training->step.n_results) return false;
  if (which == TFM_TENSOR_FIRST) return !is_sgd || t->settings.momentum > 0;
  return which == TFM_TENSOR_GRADIENT || !is_sgd;
}

static uint64_t floats_of(const tfm_training *training, int which) {
  return which == TFM_TENSOR_WEIGHT ? training->floats : training->trained_floats;
}

/* Places the arrays behind the trainer and returns the size of all; -1: it is too large to count. */
static int64_t place_arrays(tfm_trainer *t, char *block) {
  const tfm_training *training = t->training;
  const uint32_t inputs = most_inputs(training), outputs = most_outputs(training);
  Layout layout = {.block = block};
  layout_take(&layout, 1, sizeof *t);
  for (int i = 0; i < N_TENSORS; i++)
    t->blocks[i] =
        needs(t, (tfm_train_tensor)i) ? layout_take(&layout, (int64_t)floats_of(training, i), sizeof(float)) : NULL;
#define ARRAY(field, count) (t->field = layout_take(&layout, (count), sizeof *t->field))
  ARRAY(tops, (int64_t)outputs * (MOST_LEVELS + 1));
  ARRAY(bottoms, (int64_t)outputs * (MOST_LEVELS + 1));
  ARRAY(numbers, (int64_t)training->step.n_results + training->evaluation.n_results);
  ARRAY(outputs, outputs);
  ARRAY(seeds, training->n_seeds);
  ARRAY(cotangents, training->n_seeds);
  ARRAY(formula, 2 * (int64_t)most_steps(training));
  ARRAY(chunk_sums, t->n_chunks);
  ARRAY(values, inputs);
  ARRAY(results, outputs);
  ARRAY(rests, outputs);
  ARRAY(dims, (int64_t)inputs * TFM_MAX_RANK);
  ARRAY(sizes, training->n_sizes);
#undef ARRAY
  return layout.bytes;
}

/* Members beyond the caller's struct_size are zero, which is the default of each. */
static tfm_trainer_options read_options(const tfm_trainer_options *given) {
  tfm_trainer_options known = {0};
  if (given) memcpy(&known, given, given->struct_size < sizeof known ? given->struct_size : sizeof known);
  return known;
}

static tfm_status check_settings(const tfm_train_settings *s, tfm_error *error) {
  const char *wrong = NULL;
  const double shares[] = {s->beta1, s->beta2, s->momentum};
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
    if (!(shares[i] >= 0 && shares[i] < 1)) wrong = "betas and momentum lie in [0, 1)";
  if (!(s->lr > 0 && isfinite(s->lr)) || !(s->eps > 0 && isfinite(s->eps))) wrong = "lr and eps are greater than 0";
  if (!(s->weight_decay >= 0 && s->clip_norm >= 0 && s->warmup >= 0 && s->steps >= 0))
    wrong = "weight_decay, clip_norm, warmup and steps are at least 0";
  if (s->schedule < TFM_SCHEDULE_CONSTANT || s->schedule > TFM_SCHEDULE_INVERSE_SQRT)
    wrong = "there is no such schedule";
  const bool has_peak = s->schedule == TFM_SCHEDULE_NOAM || s->schedule == TFM_SCHEDULE_INVERSE_SQRT;
  const bool has_end = s->schedule == TFM_SCHEDULE_LINEAR || s->schedule == TFM_SCHEDULE_COSINE;
  if (has_peak && !(s->warmup > 0)) wrong = "the schedule needs warmup";
  if (s->schedule == TFM_SCHEDULE_NOAM && !(s->model_size > 0)) wrong = "the schedule needs model_size";
  if (has_end && !(s->steps > s->warmup)) wrong = "the schedule needs steps, more than warmup";
  if (s->schedule == TFM_SCHEDULE_EXPONENTIAL && !(s->gamma > 0)) wrong = "the schedule needs gamma";
  return wrong ? tfm_refuse(error, TFM_E_INPUT, "settings of training: %s", wrong) : TFM_OK;
}

static bool is_power(int32_t n) { return n > 0 && (n & (n - 1)) == 0; }

static tfm_status read_ranks(const tfm_trainer_options *o, Ranks *ranks, tfm_error *error) {
  const int32_t n = o->ranks ? o->ranks : 1, shards = o->shards ? o->shards : 1;
  const char *wrong = NULL;
  *ranks = (Ranks){o->rank, n, shards > n ? shards / n : 1, o->sum, o->exchange, o->user};
  if (n < 1 || o->rank < 0 || o->rank >= n)
    wrong = "rank lies in [0, ranks)";
  else if (n > 1 && !o->sum && !o->exchange)
    wrong = "several ranks need sum or exchange";
  else if (!is_power(shards))
    wrong = "shards are a power of two";
  else if (o->exchange && n > 1 && (shards % n || !is_power(n)))
    wrong = "with exchange, ranks divide shards";
  else if (!o->exchange && n > 1 && shards > 1)
    wrong = "shards of several ranks need exchange";
  else if (ranks->shards >= 1 << MOST_LEVELS)
    wrong = "a rank has at most 1024 shards";
  return wrong ? tfm_refuse(error, TFM_E_USAGE, "options of training: %s", wrong) : TFM_OK;
}

tfm_status tfm_trainer_create(const tfm_training *training, const tfm_train_engine *engine,
                              const tfm_trainer_options *given, tfm_trainer **trainer, tfm_error *error) {
  const tfm_trainer_options options = read_options(given);
  tfm_trainer shape = {.training = training,
                       .engine = *engine,
                       .allocator = options.allocator,
                       .seed = options.seed,
                       .fills = options.fills};
  *trainer = NULL;
  shape.settings = options.settings ? *options.settings : training->settings;
  tfm_status status = check_settings(&shape.settings, error);
  if (!status) status = read_ranks(&options, &shape.ranks, error);
  if (status) return status;
  shape.pool = engine->step_tops ? engine->step_tops->pool : NULL;
  shape.n_chunks = optimizer_chunks(training);
  shape.bytes = place_arrays(&shape, NULL);
  char *block = shape.bytes < 0 ? NULL : allocate_room(&options.allocator, &shape.bytes);
  if (!block)
    return tfm_refuse(error, TFM_E_NOMEM, "no memory for the %llu numbers of each kind that a trainer has",
                      (unsigned long long)training->floats);
  if (options.allocator.allocate) memset(block, 0, (size_t)shape.bytes);
  place_arrays(&shape, block);
  *trainer = (tfm_trainer *)(void *)block;
  **trainer = shape;
  return tfm_succeed(error);
}

int64_t trainer_bytes(const tfm_training *training, const tfm_trainer_options *options) {
  tfm_trainer shape = {.training = training, .n_chunks = optimizer_chunks(training)};
  const tfm_trainer_options known = read_options(options);
  shape.settings = known.settings ? *known.settings : training->settings;
  return place_arrays(&shape, NULL);
}

static void free_contexts(const tfm_train_engine *engine) {
  training_context_free(engine->step_tops);
  training_context_free(engine->step_bottoms);
  training_context_free(engine->tops);
  training_context_free(engine->bottoms);
}

/* The library goes last: its tables say what there is to free. */
void tfm_trainer_destroy(tfm_trainer *t) {
  if (!t) return;
  const tfm_allocator allocator = t->allocator;
  tfm_model *owner = t->owner;
  if (t->owns_contexts) {
    free_contexts(&t->engine);
    pool_destroy(t->own_pool);
  }
  const tfm_training *training = t->owns_contexts ? t->training : NULL;
  release_room(&allocator, t->part, t->block_bytes);
  for (int i = 0; i < MOST_LEVELS; i++) release_room(&allocator, t->levels[i], t->block_bytes);
  release(&allocator, t->masks, (size_t)t->mask_bytes);
  release(&allocator, t->note, (size_t)t->note_bytes);
  release_room(&allocator, t, t->bytes);
  training_free_tables(training);
  tfm_model_close(owner);
}

tfm_status tfm_trainer_draw_one(tfm_trainer *t, uint32_t parameter, tfm_error *error) {
  const tfm_parameter *p = &t->training->parameters[parameter];
  if (p->initial.kind == TFM_INITIAL_NONE)
    return tfm_refuse(error, TFM_E_INPUT, "weight '%s' has no initial value", p->path);
  draw_initial(p, t->seed, tfm_trainer_data(t, parameter, TFM_TENSOR_WEIGHT));
  return tfm_succeed(error);
}

tfm_status tfm_trainer_draw(tfm_trainer *t, tfm_error *error) {
  tfm_status status = tfm_succeed(error);
  for (uint32_t i = 0; i < t->training->n_parameters && !status; i++)
    if (t->training->parameters[i].initial.kind != TFM_INITIAL_NONE || !t->fills)
      status = tfm_trainer_draw_one(t, i, error);
  return status;
}

float *tfm_trainer_data(tfm_trainer *t, uint32_t parameter, tfm_train_tensor which) {
  const tfm_parameter *p = &t->training->parameters[parameter];
  if (!t->blocks[which] || (which != TFM_TENSOR_WEIGHT && p->gradient == TFM_NONE)) return NULL;
  return t->blocks[which] + (which == TFM_TENSOR_WEIGHT ? p->offset : p->trained);
}

uint64_t tfm_trainer_trained(const tfm_trainer *t) {
  uint64_t h = 14695981039346656037u; /* FNV-1a, of words */
  for (uint32_t i = 0; i < t->training->n_parameters; i++)
    if (t->training->parameters[i].gradient != TFM_NONE) h = (h ^ i) * 1099511628211u;
  return h;
}

int64_t tfm_trainer_steps(const tfm_trainer *t) { return t->t; }
void tfm_trainer_set_steps(tfm_trainer *t, int64_t steps) { t->t = steps; }
void tfm_trainer_set_origin(tfm_trainer *t, const tfm_trainer_origin *origin) { t->head.origin = *origin; }
void tfm_trainer_set_epoch(tfm_trainer *t, int64_t epoch) { t->epoch = epoch; }

void tfm_trainer_cancel(tfm_trainer *t) {
  atomic_store(&t->cancelled, true);
  tfm_context_cancel(t->engine.step_tops);
  tfm_context_cancel(t->engine.step_bottoms);
  tfm_context_cancel(t->engine.tops);
  tfm_context_cancel(t->engine.bottoms);
}

// ---- what a library exports: a trainer with contexts of its own ----

static tfm_context_options options_of(const tfm_trainer_options *options, tfm_pool *pool) {
  return (tfm_context_options){
      .struct_size = sizeof(tfm_context_options), .pool = pool, .allocator = options->allocator};
}

static tfm_status make_contexts(const tfm_training *training, const tfm_context_options *options,
                                tfm_train_engine *engine, tfm_error *error) {
  uint32_t number;
  tfm_status status = training_choose(training, &number, error);
  if (!status) status = training_context(&training->step.tops, number, options, &engine->step_tops, error);
  if (!status) status = training_context(&training->step.bottoms, number, options, &engine->step_bottoms, error);
  if (!status) status = training_context(&training->evaluation.tops, number, options, &engine->tops, error);
  if (!status) status = training_context(&training->evaluation.bottoms, number, options, &engine->bottoms, error);
  return status;
}

static tfm_status make_with(const tfm_training *training, tfm_pool *pool, const tfm_trainer_options *options,
                            tfm_trainer **trainer, tfm_error *error) {
  tfm_train_engine engine = {0};
  const tfm_context_options given = options_of(options, pool);
  tfm_status status = make_contexts(training, &given, &engine, error);
  if (!status) status = tfm_trainer_create(training, &engine, options, trainer, error);
  if (status) free_contexts(&engine);
  return status;
}

/* What a failure leaves is freed as a trainer would be. */
static tfm_status make(const tfm_training *packed, const tfm_trainer_options *options, tfm_trainer **trainer,
                       tfm_error *error) {
  Pool *own = NULL;
  const tfm_training *training = training_unpack_tables(packed, &options->allocator);
  if (training && !options->pool)
    own = pool_create(pool_threads_wanted(options->threads), pool_spin_ns(options->spin_us), &options->allocator);
  tfm_pool *pool = options->pool ? options->pool : own;
  const tfm_status status = training && pool ? make_with(training, pool, options, trainer, error)
                                             : tfm_refuse(error, TFM_E_NOMEM, "no memory for tables and threads");
  if (status) {
    pool_destroy(own);
    training_free_tables(training);
    return status;
  }
  (*trainer)->owns_contexts = true;
  (*trainer)->own_pool = own;
  return TFM_OK;
}

const tfm_training *tfm_library_training_self(const tfm_training *training) { return training; }

void tfm_library_training_defaults(const tfm_training *training, tfm_train_settings *settings) {
  if (settings) *settings = training->settings;
}

// ---- states ----

enum { N_SAVED = TFM_STATE_SECOND + 1 };

static const tfm_train_tensor saved[N_SAVED] = {TFM_TENSOR_WEIGHT, TFM_TENSOR_FIRST, TFM_TENSOR_SECOND};

static uint64_t saved_bytes(const tfm_trainer *t, int i) {
  return t->blocks[saved[i]] ? floats_of(t->training, saved[i]) * sizeof(float) : 0;
}

static tfm_status check_state(const tfm_trainer *t, const tfm_state_file *file, tfm_error *error) {
  bool fits = file->head.model == t->training->model;
  for (int i = 0; i < N_SAVED; i++) {
    const bool begins = i && !file->head.step && !file->bytes[i]; /* a start from `tfmc pack`: moments are zeroes */
    const bool is_same = file->bytes[i] == saved_bytes(t, i) && (!i || file->head.trained == tfm_trainer_trained(t));
    fits = fits && (begins || is_same);
  }
  return fits ? TFM_OK
              : tfm_refuse(error, TFM_E_ENV,
                           "%s: this state is of another model, another -D, another optimizer or other frozen weights",
                           file->path);
}

static tfm_status read_note(tfm_trainer *t, const tfm_state_file *file, tfm_error *error) {
  const int64_t bytes = (int64_t)file->bytes[TFM_STATE_NOTE];
  if (!bytes) return TFM_OK;
  t->note = allocate(&t->allocator, (size_t)bytes, sizeof(void *));
  if (!t->note) return tfm_refuse(error, TFM_E_NOMEM, "no memory for a note of %lld bytes", (long long)bytes);
  t->note_bytes = bytes;
  return tfm_state_read(file, TFM_STATE_NOTE, t->note, error);
}

/* The file is whole when it is open: all of it has been compared with its hashes. */
static tfm_status load_state(tfm_trainer *t, const char *path, tfm_error *error) {
  tfm_state_file file;
  tfm_status status = tfm_state_open(&file, path, error);
  if (status) return status;
  status = check_state(t, &file, error);
  for (int i = 0; i < N_SAVED && !status; i++)
    if (file.bytes[i]) status = tfm_state_read(&file, (tfm_state_block)i, t->blocks[saved[i]], error);
  if (!status) status = read_note(t, &file, error);
  t->head = file.head;
  t->t = file.head.step;
  t->epoch = file.head.epoch;
  t->seed = file.head.seed;
  tfm_state_close(&file);
  return status;
}

/* A folder that holds another run's checkpoints: neither of the two could go on from it. One that this trainer's state
 * came from, or that an earlier trainer of the same kind left behind, may be written to. */
static tfm_status check_folder(const tfm_trainer *t, const char *folder, tfm_error *error) {
  char latest[PATH_MAX], path[PATH_MAX + sizeof TFM_CHECKPOINT_STATE + 1];
  tfm_state_head head;
  tfm_status status = tfm_checkpoint_latest(folder, latest, sizeof latest, error);
  if (status || !*latest) return status;
  snprintf(path, sizeof path, "%s/" TFM_CHECKPOINT_STATE, latest);
  status = tfm_state_read_head(path, &head, error);
  if (status) return status;
  const bool is_same = head.model == t->training->model && head.seed == t->seed && head.settings == t->head.settings &&
                       head.data == t->head.data;
  if (is_same && (t->head.model || head.step <= t->t)) return TFM_OK;
  return tfm_refuse(
      error, TFM_E_ENV,
      "%s: the folder holds another run, whose newest checkpoint is of step %lld: save to a folder of its "
      "own, or make the trainer from that checkpoint",
      folder, (long long)head.step);
}

static tfm_status save_state(tfm_trainer *t, const char *folder, const void *note, int64_t note_bytes,
                             tfm_error *error) {
  const uint32_t n = t->training->n_parameters;
  tfm_named_tensor *tensors = allocate(&t->allocator, (n + 1) * sizeof *tensors, ALIGNMENT);
  tfm_state_bytes blocks[TFM_STATE_BLOCKS] = {0};
  if (!tensors) return tfm_refuse(error, TFM_E_NOMEM, "no memory for a list of weights");
  for (uint32_t i = 0; i < n; i++) {
    const tfm_parameter *p = &t->training->parameters[i];
    tensors[i] = (tfm_named_tensor){p->path, tfm_trainer_data(t, i, TFM_TENSOR_WEIGHT), p->dims, p->rank};
  }
  for (int i = 0; i < N_SAVED; i++) blocks[i] = (tfm_state_bytes){t->blocks[saved[i]], saved_bytes(t, i)};
  if (note) blocks[TFM_STATE_NOTE] = (tfm_state_bytes){note, (uint64_t)note_bytes};
  tfm_state_head head = t->head;
  head.model = t->training->model;
  head.trained = tfm_trainer_trained(t);
  head.seed = t->seed;
  head.step = t->t;
  head.epoch = t->epoch;
  if (!t->head.model) head.best = INFINITY;
  if (!t->head.model) head.best_score = -INFINITY;
  mkdir(folder, 0777); /* it may be there */
  tfm_status status = check_folder(t, folder, error);
  if (!status) status = tfm_checkpoint_save(folder, &head, blocks, tensors, n, error);
  release(&t->allocator, tensors, (n + 1) * sizeof *tensors);
  return status;
}

const void *tfm_trainer_note(const tfm_trainer *t, int64_t *bytes) {
  if (bytes) *bytes = t ? t->note_bytes : 0;
  return t ? t->note : NULL;
}

// ---- making one ----

tfm_status tfm_library_trainer_new(const tfm_training *training, const char *state, const tfm_trainer_options *given,
                                   tfm_trainer **trainer, tfm_error *error) {
  tfm_trainer_options options = {0};
  if (!trainer) return tfm_refuse_call(error, "there is no place for the trainer");
  *trainer = NULL;
  if (given) memcpy(&options, given, least_of((int64_t)given->struct_size, sizeof options));
  options.struct_size = sizeof options;
  if (!options.allocator.allocate != !options.allocator.release)
    return tfm_refuse_call(error, "an allocator needs both functions");
  tfm_status status = make(training, &options, trainer, error);
  if (!status) status = state ? load_state(*trainer, state, error) : tfm_trainer_draw(*trainer, error);
  if (!status) return tfm_succeed(error);
  tfm_trainer_destroy(*trainer);
  *trainer = NULL;
  return status;
}

tfm_status tfm_library_trainer_new_as(const tfm_training *training, uint64_t layout, const char *state,
                                      const tfm_trainer_options *options, tfm_trainer **trainer, tfm_error *error) {
  if (trainer) *trainer = NULL;
  tfm_status status = library_check_layout(training->library->model, training->args_number, layout, error);
  return status ? status : tfm_library_trainer_new(training, state, options, trainer, error);
}

/* A model without weights keeps the library loaded; making it compares versions, so it comes before anything else of
 * the table is read than where the library is. */
static tfm_status open_table(const tfm_training *training, void *handle, const char *state,
                             const tfm_trainer_options *options, tfm_trainer **trainer, tfm_error *error) {
  tfm_model *owner = NULL;
  tfm_status status = model_new(training->library, &owner, error);
  if (!status) status = tfm_library_trainer_new(training, state, options, trainer, error);
  if (status) {
    tfm_model_close(owner);
    return status;
  }
  owner->handle = handle;
  owner->unload = dlclose;
  (*trainer)->owner = owner;
  return TFM_OK;
}

tfm_status tfm_trainer_open(const char *library_path, const char *state, const tfm_trainer_options *options,
                            tfm_trainer **trainer, tfm_error *error) {
  void *handle;
  const void *table;
  if (!trainer) return tfm_refuse_call(error, "there is no place for the trainer");
  *trainer = NULL;
  tfm_status status = library_load(library_path, "_program", &handle, &table, error);
  if (status) return status;
  dlclose(handle); /* it is a model: what follows says whether it trains */
  if (library_load(library_path, "_training", &handle, &table, NULL))
    return tfm_refuse(error, TFM_E_ENV, "%s: this model does not train: it was compiled without --training",
                      library_path);
  status = open_table(table, handle, state, options, trainer, error);
  if (status) dlclose(handle);
  return status;
}

// ---- using one ----

tfm_status training_enter(tfm_trainer *t, tfm_error *error) {
  if (!t) return tfm_refuse_call(error, "the trainer is a null pointer");
  if (atomic_exchange_explicit(&t->running, true, memory_order_acquire))
    return tfm_refuse_call(error, "another thread is using this trainer");
  return TFM_OK;
}

tfm_status training_leave(tfm_trainer *t, tfm_status status) {
  atomic_store_explicit(&t->running, false, memory_order_release);
  return status;
}

tfm_status tfm_trainer_save(tfm_trainer *t, const char *folder, const void *note, int64_t note_bytes,
                            tfm_error *error) {
  tfm_status status = training_enter(t, error);
  if (status) return status;
  if (!folder || note_bytes < 0)
    status = tfm_refuse_call(error, "a folder is needed, and a note has no negative number of bytes");
  else
    status = save_state(t, folder, note, note_bytes, error);
  return training_leave(t, status ? status : tfm_succeed(error));
}

// ---- what the objective is ----

const tfm_tensor_info *tfm_trainer_inputs(const tfm_trainer *t, uint32_t *n) {
  const tfm_context *context = t ? t->engine.step_tops : NULL;
  if (n) *n = context ? t->training->n_inputs : 0;
  return context ? context->program->inputs : NULL;
}

const char *tfm_trainer_result(const tfm_trainer *t, int64_t result) {
  const bool is_there = t && result >= 0 && result < (int64_t)t->training->step.n_results;
  return is_there ? t->training->step.results[result].name : NULL;
}

void tfm_trainer_settings(const tfm_trainer *t, tfm_train_settings *settings) {
  if (t && settings) *settings = t->settings;
}

// ---- tensors ----

const char *tfm_trainer_path(const tfm_trainer *t, int64_t parameter) {
  const bool is_there = t && parameter >= 0 && parameter < (int64_t)t->training->n_parameters;
  return is_there ? t->training->parameters[parameter].path : NULL;
}

tfm_status tfm_trainer_tensor(tfm_trainer *t, const char *path, int32_t which, float **data, int64_t *dims,
                              int32_t *rank, tfm_error *error) {
  if (!t || !path || !data) return tfm_refuse_call(error, "a trainer, a path and a place for the tensor are needed");
  *data = NULL;
  if (which < TFM_TENSOR_WEIGHT || which > TFM_TENSOR_SECOND) return tfm_refuse_call(error, "there is no such tensor");
  for (uint32_t i = 0; i < t->training->n_parameters; i++) {
    const tfm_parameter *p = &t->training->parameters[i];
    if (strcmp(p->path, path) != 0) continue;
    *data = tfm_trainer_data(t, i, (tfm_train_tensor)which);
    if (dims) memcpy(dims, p->dims, sizeof p->dims);
    if (rank) *rank = p->rank;
    if (*data) return tfm_succeed(error);
    return tfm_refuse(error, TFM_E_INPUT, "weight '%s' is not trained, or the optimizer keeps no such number", path);
  }
  return tfm_refuse(error, TFM_E_INPUT, "the objective has no weight '%s'", path);
}

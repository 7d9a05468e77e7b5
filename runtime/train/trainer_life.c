/* The life of a trainer: making it (<model>_trainer_new, tfm_trainer_open), filling in its weights, ending it.
 *
 * In: a tfm_training, or the path of a library that has one; what runs its graphs, a tfm_trainer_options of any
 * version. Out: a trainer, whose weights are zeroes until they are drawn or filled in. Refused: settings out of range,
 * weights without an initial value, a library that does not train or is of another version. The trainer, its arrays and
 * its blocks are one block of memory; what is frozen is another, or a file's. */
#include <dlfcn.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "library/exports.h"
#include "library/open.h"
#include "train/trainer_parts.h"

// ---- making ----

static uint32_t most_inputs(const tfm_training *training) {
  const tfm_train_mixture *mixture = &training->step.mixture, *evaluated = &training->evaluation.mixture;
  const tfm_train_graph *graphs[] = {&training->step.tops,
                                     &training->step.bottoms,
                                     &training->evaluation.tops,
                                     &training->evaluation.bottoms,
                                     &mixture->vectors,
                                     &mixture->whole,
                                     &mixture->back,
                                     &evaluated->vectors,
                                     &evaluated->whole};
  uint32_t most = 0;
  for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
    if (graphs[i]->n_inputs > most) most = graphs[i]->n_inputs;
  return most;
}

static uint32_t outputs_of(const tfm_objective *o) {
  const tfm_train_mixture *mixture = &o->mixture;
  return o->tops.n_outputs + o->bottoms.n_outputs + mixture->vectors.n_outputs + mixture->whole.n_outputs +
         mixture->back.n_outputs;
}

static uint32_t most_outputs(const tfm_training *training) {
  return outputs_of(&training->step) + outputs_of(&training->evaluation);
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
  if (which == TFM_TENSOR_MEAN) return t->training->average != NULL;
  if (which == TFM_TENSOR_FIRST) return !is_sgd || t->settings.momentum > 0;
  return which == TFM_TENSOR_GRADIENT || !is_sgd;
}

/* Places the arrays behind the trainer and returns the size of all; -1: it is too large to count. */
static int64_t place_trainer_arrays(tfm_trainer *t, char *block) {
  const tfm_training *training = t->training;
  const uint32_t inputs = most_inputs(training), outputs = most_outputs(training);
  Layout layout = {.block = block};
  layout_take(&layout, 1, sizeof *t);
  for (int i = 0; i < N_TENSORS; i++)
    t->blocks[i] =
        needs(t, (tfm_train_tensor)i) ? layout_take(&layout, (int64_t)training->floats, sizeof(float)) : NULL;
#define ARRAY(field, count) (t->field = layout_take(&layout, (count), sizeof *t->field))
  ARRAY(places, training->n_parameters);
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
  ARRAY(result_dims, (int64_t)outputs * TFM_MAX_RANK);
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

/* Address space that takes no memory before it is filled, or mapped over by a file's. NULL: there is none. */
static char *make_frozen(tfm_trainer *t) {
  t->frozen_room = (int64_t)t->training->frozen_bytes;
  if (t->training->frozen_bytes > INT64_MAX / 2) return NULL;
  char *frozen = allocate_room(&t->allocator, &t->frozen_room);
  if (frozen && t->allocator.allocate) memset(frozen, 0, (size_t)t->training->frozen_bytes);
  return frozen;
}

static void find_places(tfm_trainer *t) {
  for (uint32_t i = 0; i < t->training->n_parameters; i++) {
    const tfm_parameter *p = &t->training->parameters[i];
    const bool is_trained = p->gradient != TFM_NONE;
    t->places[i] = is_trained ? (void *)(t->blocks[TFM_TENSOR_WEIGHT] + p->offset) : (void *)(t->frozen + p->offset);
  }
}

static void free_frozen(tfm_trainer *t) {
  if (t->frozen_mapping) munmap(t->frozen, (size_t)t->frozen_mapping);
  if (t->frozen_room) release_room(&t->allocator, t->frozen, t->frozen_room);
  t->frozen_mapping = t->frozen_room = 0;
}

static tfm_status no_trainer_memory(const tfm_training *training, tfm_error *error) {
  return tfm_refuse(error, TFM_E_NOMEM,
                    "no memory for the %llu numbers of each kind that a trainer has, and %llu bytes of frozen weights",
                    (unsigned long long)training->floats, (unsigned long long)training->frozen_bytes);
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
  shape.bytes = place_trainer_arrays(&shape, NULL);
  char *block = shape.bytes < 0 ? NULL : allocate_room(&options.allocator, &shape.bytes);
  if (block && training->frozen_bytes && !(shape.frozen = make_frozen(&shape))) {
    release_room(&options.allocator, block, shape.bytes);
    block = NULL;
  }
  if (!block) return no_trainer_memory(training, error);
  if (options.allocator.allocate) memset(block, 0, (size_t)shape.bytes);
  place_trainer_arrays(&shape, block);
  *trainer = (tfm_trainer *)(void *)block;
  **trainer = shape;
  find_places(*trainer);
  return tfm_succeed(error);
}

int64_t trainer_bytes(const tfm_training *training, const tfm_trainer_options *options) {
  tfm_trainer shape = {.training = training, .n_chunks = optimizer_chunks(training)};
  const tfm_trainer_options known = read_options(options);
  shape.settings = known.settings ? *known.settings : training->settings;
  const int64_t bytes = place_trainer_arrays(&shape, NULL);
  return bytes < 0 || training->frozen_bytes > (uint64_t)(INT64_MAX - bytes) ? -1
                                                                             : bytes + (int64_t)training->frozen_bytes;
}

static void free_contexts(const tfm_train_engine *engine) {
  training_context_free(engine->step_tops);
  training_context_free(engine->step_bottoms);
  training_context_free(engine->tops);
  training_context_free(engine->bottoms);
  training_context_free(engine->step_vectors);
  training_context_free(engine->step_whole);
  training_context_free(engine->step_back);
  training_context_free(engine->vectors);
  training_context_free(engine->whole);
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
  if (t->training->mixer) mixer_of(t)->free(t);
  release_room(&allocator, t->part, t->block_bytes);
  for (int i = 0; i < MOST_LEVELS; i++) release_room(&allocator, t->levels[i], t->block_bytes);
  release(&allocator, t->masks, (size_t)t->mask_bytes);
  release(&allocator, t->note, (size_t)t->note_bytes);
  free_frozen(t);
  release_room(&allocator, t, t->bytes);
  training_free_tables(training);
  tfm_model_close(owner);
}

void tfm_trainer_cancel(tfm_trainer *t) {
  atomic_store(&t->cancelled, true);
  tfm_context_cancel(t->engine.step_tops);
  tfm_context_cancel(t->engine.step_bottoms);
  tfm_context_cancel(t->engine.tops);
  tfm_context_cancel(t->engine.bottoms);
  tfm_context_cancel(t->engine.step_vectors);
  tfm_context_cancel(t->engine.step_whole);
  tfm_context_cancel(t->engine.step_back);
  tfm_context_cancel(t->engine.vectors);
  tfm_context_cancel(t->engine.whole);
}

// ---- what a library exports: a trainer with contexts of its own ----

static tfm_context_options options_of(const tfm_trainer_options *options, tfm_pool *pool) {
  return (tfm_context_options){
      .struct_size = sizeof(tfm_context_options), .pool = pool, .allocator = options->allocator};
}

/* They take memory when a step has several parts. */
static tfm_status make_mixed_contexts(const tfm_training *training, uint32_t number,
                                      const tfm_context_options *options, tfm_train_engine *engine, tfm_error *error) {
  const tfm_train_mixture *step = &training->step.mixture, *evaluation = &training->evaluation.mixture;
  tfm_status status = training_context(&step->vectors, number, options, &engine->step_vectors, error);
  if (!status) status = training_context(&step->whole, number, options, &engine->step_whole, error);
  if (!status) status = training_context(&step->back, number, options, &engine->step_back, error);
  if (!status) status = training_context(&evaluation->vectors, number, options, &engine->vectors, error);
  if (!status) status = training_context(&evaluation->whole, number, options, &engine->whole, error);
  return status;
}

static tfm_status make_contexts(const tfm_training *training, const tfm_context_options *options,
                                tfm_train_engine *engine, tfm_error *error) {
  uint32_t number;
  tfm_status status = training_choose(training, &number, error);
  if (!status) status = training_context(&training->step.tops, number, options, &engine->step_tops, error);
  if (!status) status = training_context(&training->step.bottoms, number, options, &engine->step_bottoms, error);
  if (!status) status = training_context(&training->evaluation.tops, number, options, &engine->tops, error);
  if (!status) status = training_context(&training->evaluation.bottoms, number, options, &engine->bottoms, error);
  return status ? status : make_mixed_contexts(training, number, options, engine, error);
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
static tfm_status make_trainer(const tfm_training *packed, const tfm_trainer_options *options, tfm_trainer **trainer,
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

// ---- making one ----

/* What is frozen lies where the file was mapped, in place of memory of its own. */
static void take_mapping(tfm_trainer *t, const tfm_trainer_begin *begin) {
  free_frozen(t);
  t->frozen = begin->frozen;
  t->frozen_mapping = (int64_t)begin->frozen_mapping;
  t->has_base = true;
  find_places(t);
}

/* From a file, from a state, or from the seed; of a model with adapters, a base and then what a state has. */
static tfm_status fill_trainer(tfm_trainer *t, const tfm_trainer_begin *begin, const char *state,
                       const tfm_trainer_options *options, tfm_error *error) {
  const bool has_file = begin && (begin->trained || begin->frozen);
  tfm_status status = TFM_OK;
  if (begin && begin->frozen) take_mapping(t, begin);
  if (options->base && !t->has_base) status = trainer_load_base(t, options->base, error);
  if (status) return status;
  if (state) return trainer_load(t, state, error);
  if (!has_file) return tfm_trainer_draw(t, error);
  if (begin->trained && t->training->floats)
    memcpy(t->blocks[TFM_TENSOR_WEIGHT], begin->trained, t->training->floats * sizeof(float));
  return TFM_OK;
}

static tfm_status make_as_asked(const tfm_training *training, const tfm_trainer_options *given,
                                tfm_trainer_options *options, tfm_trainer **trainer, tfm_error *error) {
  if (!trainer) return tfm_refuse_call(error, "there is no place for the trainer");
  *trainer = NULL;
  *options = (tfm_trainer_options){0};
  if (given) memcpy(options, given, least_of((int64_t)given->struct_size, sizeof *options));
  options->struct_size = sizeof *options;
  if (!options->allocator.allocate != !options->allocator.release)
    return tfm_refuse_call(error, "an allocator needs both functions");
  return make_trainer(training, options, trainer, error);
}

tfm_status tfm_library_trainer_begin(const tfm_training *training, const tfm_trainer_begin *begin, const char *state,
                                     const tfm_trainer_options *given, tfm_trainer **trainer, tfm_error *error) {
  tfm_trainer_options options;
  tfm_status status = make_as_asked(training, given, &options, trainer, error);
  if (status && begin && begin->frozen) munmap(begin->frozen, begin->frozen_mapping);
  if (status) return status;
  status = fill_trainer(*trainer, begin, state, &options, error);
  if (!status) return tfm_succeed(error);
  tfm_trainer_destroy(*trainer);
  *trainer = NULL;
  return status;
}

tfm_status tfm_library_trainer_new(const tfm_training *training, const char *state, const tfm_trainer_options *options,
                                   tfm_trainer **trainer, tfm_error *error) {
  return tfm_library_trainer_begin(training, NULL, state, options, trainer, error);
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

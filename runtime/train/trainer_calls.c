/* What trainers are asked to do: <model>_trainer_step and the like, whose parts are structs of args, and
 * tfm_trainer_step and the like of tfm.h, whose parts are values of the objective's inputs.
 *
 * In: a trainer, parts of a step. Out: results, bytes of memory; the trainer is its caller's for as long as a call
 * takes. Refused: no parts, args that are missing or too short, a trainer that another thread is using. */
#include <string.h>

#include "base/error.h"
#include "context/binding.h"
#include "library/exports.h"
#include "train/trainer_parts.h"

// ---- parts ----

/* Structs of args follow each other as far apart as the caller's compiler has them: its struct_size, or the library's
 * own if that is 0. */
static tfm_status read_parts(const tfm_training *training, tfm_train_parts *parts, tfm_error *error) {
  parts->stride = training->args_size;
  if (parts->n < 1 || (!parts->args && !parts->values))
    return tfm_refuse_call(error, "there are no parts: at least one is needed");
  for (int64_t i = 0; i < parts->n && !parts->values; i++) {
    size_t size;
    memcpy(&size, (const char *)parts->args + (size_t)i * parts->stride, sizeof size);
    if (size && size < training->args_size) return tfm_refuse_call(error, "struct_size of args is too small");
    if (size && !i) parts->stride = size;
  }
  return TFM_OK;
}

static tfm_train_parts parts_of_args(const void *args, int64_t n) { return (tfm_train_parts){.n = n, .args = args}; }

static tfm_train_parts parts_of(const tfm_value *values, int64_t n) {
  return (tfm_train_parts){.n = n, .values = values};
}

// ---- steps ----

/* Members beyond the caller's struct_size are not written. */
static void give(const tfm_trainer *t, const tfm_objective *objective, const double *results, double norm, double rate,
                 tfm_step_result *result) {
  if (!result) return;
  tfm_step_result made = {.step = t->t, .loss = t->loss, .norm = norm, .rate = rate};
  made.struct_size = result->struct_size && result->struct_size < sizeof made ? result->struct_size : sizeof made;
  if (results) made.loss = results[0];
  for (uint32_t i = 0; results && i < objective->n_results && i < TFM_MAX_RESULTS; i++) made.results[i] = results[i];
  memcpy(result, &made, made.struct_size);
}

static tfm_status gradients(tfm_trainer *t, tfm_train_parts parts, int64_t first_item, tfm_error *error) {
  tfm_status status = read_parts(t->training, &parts, error);
  return status ? status : tfm_train_gradients(t, &parts, first_item, t->numbers, error);
}

/* The gradients of the parts (NULL: those that there are stay), the update, or both, which are a step. */
static tfm_status run_step(tfm_trainer *t, const tfm_train_parts *parts, int64_t first_item, bool updates,
                           tfm_step_result *result, tfm_error *error) {
  double norm = 0, rate = 0;
  tfm_status status = training_enter(t, error);
  if (status) return status;
  if (parts) status = gradients(t, *parts, first_item, error);
  if (!status && updates) status = tfm_train_update(t, t->loss, &norm, &rate, error);
  if (!status) give(t, &t->training->step, t->numbers, norm, rate, result);
  return training_leave(t, status);
}

tfm_status tfm_library_trainer_gradients(tfm_trainer *t, const void *args, int64_t n, int64_t first_item,
                                         tfm_step_result *result, tfm_error *error) {
  const tfm_train_parts parts = parts_of_args(args, n);
  return run_step(t, &parts, first_item, false, result, error);
}

tfm_status tfm_trainer_gradients(tfm_trainer *t, const tfm_value *values, int64_t n, int64_t first_item,
                                 tfm_step_result *result, tfm_error *error) {
  const tfm_train_parts parts = parts_of(values, n);
  return run_step(t, &parts, first_item, false, result, error);
}

tfm_status tfm_trainer_update(tfm_trainer *t, tfm_step_result *result, tfm_error *error) {
  return run_step(t, NULL, 0, true, result, error);
}

tfm_status tfm_library_trainer_step(tfm_trainer *t, const void *args, int64_t n, int64_t first_item,
                                    tfm_step_result *result, tfm_error *error) {
  const tfm_train_parts parts = parts_of_args(args, n);
  return run_step(t, &parts, first_item, true, result, error);
}

tfm_status tfm_trainer_step(tfm_trainer *t, const tfm_value *values, int64_t n, int64_t first_item,
                            tfm_step_result *result, tfm_error *error) {
  const tfm_train_parts parts = parts_of(values, n);
  return run_step(t, &parts, first_item, true, result, error);
}

static tfm_status run_evaluation(tfm_trainer *t, tfm_train_parts parts, tfm_step_result *result, tfm_error *error) {
  tfm_status status = training_enter(t, error);
  if (status) return status;
  double *results = t->numbers + t->training->step.n_results;
  status = read_parts(t->training, &parts, error);
  if (!status) status = tfm_train_evaluate(t, &parts, results, error);
  if (!status) give(t, &t->training->evaluation, results, 0, 0, result);
  return training_leave(t, status);
}

tfm_status tfm_library_trainer_evaluate(tfm_trainer *t, const void *args, int64_t n, tfm_step_result *result,
                                        tfm_error *error) {
  return run_evaluation(t, parts_of_args(args, n), result, error);
}

tfm_status tfm_trainer_evaluate(tfm_trainer *t, const tfm_value *parts, int64_t n, tfm_step_result *result,
                                tfm_error *error) {
  return run_evaluation(t, parts_of(parts, n), result, error);
}

// ---- memory ----

static tfm_status reserve_graph(tfm_trainer *t, const tfm_train_graph *graph, tfm_context *context, tfm_error *error) {
  if (!context) return TFM_OK;
  const tfm_program *program = context->program;
  const tfm_status status = context_reserve_symbols(context, t->sizes, 1, error);
  for (uint32_t i = 0; i < program->n_inputs; i++)
    t->values[i] =
        (tfm_value){.rank = program->inputs[i].rank, .dims = context->binding.input_dims + (size_t)i * TFM_MAX_RANK};
  return status ? status : training_reserve_masks(t, graph, t->values, error);
}

static void read_parts_sizes(tfm_trainer *t, const tfm_train_parts *parts) {
  const tfm_context *context = t->engine.step_tops;
  memset(t->sizes, 0, t->training->n_sizes * sizeof *t->sizes);
  if (parts->values)
    training_find_sizes(&t->training->step.tops, context->program, parts->values, t->sizes);
  else
    training_read_sizes(t->training, parts->args, t->sizes);
}

static tfm_status run_reserve(tfm_trainer *t, tfm_train_parts largest, tfm_error *error) {
  tfm_status status = training_enter(t, error);
  if (status) return status;
  status = read_parts(t->training, &largest, error);
  if (!status) read_parts_sizes(t, &largest);
  if (!status) status = reserve_graph(t, &t->training->step.bottoms, t->engine.step_bottoms, error);
  if (!status) status = reserve_graph(t, &t->training->step.tops, t->engine.step_tops, error);
  return training_leave(t, status ? status : tfm_succeed(error));
}

tfm_status tfm_library_trainer_reserve(tfm_trainer *t, const void *largest, tfm_error *error) {
  return run_reserve(t, parts_of_args(largest, 1), error);
}

tfm_status tfm_trainer_reserve(tfm_trainer *t, const tfm_value *largest, tfm_error *error) {
  return run_reserve(t, parts_of(largest, 1), error);
}

static int64_t measure(const tfm_training *training, const tfm_trainer_options *options, const int64_t *sizes) {
  uint32_t number;
  if (training_choose(training, &number, NULL)) return -1;
  const int32_t threads = pool_threads_wanted(options ? options->threads : 0);
  const int64_t own = trainer_bytes(training, options);
  const int64_t tops = training_measure(&training->step.tops, number, threads, sizes);
  const int64_t bottoms = training_measure(&training->step.bottoms, number, threads, sizes);
  return own < 0 || tops < 0 || bottoms < 0 ? -1 : own + tops + bottoms;
}

int64_t tfm_library_trainer_bytes(const tfm_training *packed, const tfm_trainer_options *options, const void *largest) {
  const tfm_allocator usual = {0};
  int64_t sizes[64] = {0};
  tfm_train_parts parts = parts_of_args(largest, 1);
  if (read_parts(packed, &parts, NULL) || packed->n_sizes > 64) return -1;
  training_read_sizes(packed, largest, sizes);
  const tfm_training *training = training_unpack_tables(packed, &usual);
  const int64_t bytes = training ? measure(training, options, sizes) : -1;
  training_free_tables(training);
  return bytes;
}

static int64_t measure_run(const tfm_train_graph *graph, const tfm_context *context, const int64_t *sizes) {
  return context ? training_measure_run(graph, context->program, context->threads, sizes) : 0;
}

/* Both halves of a part whose items are mixed with those of others. */
static int64_t measure_halves(const tfm_trainer *t, bool steps, const int64_t *sizes) {
  const tfm_train_mixture *mixture = steps ? &t->training->step.mixture : &t->training->evaluation.mixture;
  const int64_t forwards = measure_run(&mixture->vectors, steps ? t->engine.step_vectors : t->engine.vectors, sizes);
  const int64_t back = steps ? measure_run(&mixture->back, t->engine.step_back, sizes) : 0;
  return forwards < 0 || back < 0 ? -1 : forwards + back;
}

/* With the values of the cut, which lie in memory as parts gave them, joined, and as their cotangents twice; a value is
 * joined in double. */
int64_t tfm_trainer_whole_bytes(const tfm_trainer *t, const int64_t *sizes) {
  const bool steps = t->engine.step_tops != NULL;
  const tfm_train_mixture *mixture = steps ? &t->training->step.mixture : &t->training->evaluation.mixture;
  tfm_context *whole = steps ? t->engine.step_whole : t->engine.whole;
  if (!whole) return 0;
  const int64_t bytes = measure_run(&mixture->whole, whole, sizes);
  int64_t most = 0, all = 0;
  tfm_context *context = context_new(whole->program, &(tfm_allocator){0}, 1);
  const bool is_bound = context && context_measure(context, sizes) >= 0;
  for (uint32_t i = 0; is_bound && i < mixture->whole.n_inputs; i++) {
    int64_t n = mixture->whole.inputs[i].source == TFM_FROM_CUT;
    for (uint32_t axis = 0; axis < whole->program->inputs[i].rank; axis++)
      n *= context->binding.input_dims[(size_t)i * TFM_MAX_RANK + axis];
    most = greatest_of(most, n);
    all += n;
  }
  tfm_context_destroy(context);
  return bytes < 0 || !is_bound ? -1
                                : bytes + 4 * all * (int64_t)sizeof(float) + 2 * most * (int64_t)sizeof(double);
}

/* Of a trainer of either kind: one has contexts for steps, one for evaluations. */
int64_t tfm_trainer_part_bytes(const tfm_trainer *t, const int64_t *sizes) {
  const bool steps = t->engine.step_tops != NULL;
  const tfm_objective *objective = steps ? &t->training->step : &t->training->evaluation;
  const tfm_context *tops = steps ? t->engine.step_tops : t->engine.tops;
  const tfm_context *bottoms = steps ? t->engine.step_bottoms : t->engine.bottoms;
  if (!tops) return 0;
  const int64_t upper = training_measure_run(&objective->tops, tops->program, tops->threads, sizes);
  const int64_t lower =
      bottoms ? training_measure_run(&objective->bottoms, bottoms->program, bottoms->threads, sizes) : 0;
  const int64_t halves = measure_halves(t, steps, sizes);
  return upper < 0 || lower < 0 || halves < 0 ? -1 : greatest_of(upper, halves) + lower;
}

/* With the blocks that sums over parts and shards need. */
int64_t tfm_trainer_state_bytes(const tfm_trainer *t) {
  int64_t blocks = t->blocks[TFM_TENSOR_GRADIENT] != NULL;
  for (int32_t shards = 1; shards < t->ranks.shards; shards *= 2) blocks += blocks > 0;
  return t->bytes + (int64_t)t->training->frozen_bytes + blocks * (int64_t)(t->training->floats * sizeof(float));
}

/* A library has no more run-time sizes than a program may have: the bits of a word stand for them. */
static bool find_sizes(const tfm_trainer *t, const tfm_value *values, int64_t sizes[64]) {
  if (!t || !values || t->training->n_sizes > 64) return false;
  training_find_sizes(&t->training->step.tops, t->engine.step_tops->program, values, sizes);
  return true;
}

int64_t tfm_trainer_bytes(const tfm_trainer *t, const tfm_value *largest) {
  int64_t sizes[64] = {0};
  const int64_t part = find_sizes(t, largest, sizes) ? tfm_trainer_part_bytes(t, sizes) : -1;
  return part < 0 ? -1 : tfm_trainer_state_bytes(t) + part;
}

int64_t tfm_trainer_mixture_bytes(const tfm_trainer *t, const tfm_value *whole) {
  int64_t sizes[64] = {0};
  return find_sizes(t, whole, sizes) ? tfm_trainer_whole_bytes(t, sizes) : -1;
}

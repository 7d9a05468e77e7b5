/* Steps of training: gradients over the parts of a step, the update, and results without either.
 *
 * In: a trainer, parts of a batch. Out: results of the objective, gradients, weights that have been trained. The parts
 * of a step count as one: what their losses are divided by is added up first. Refused: a step without anything to
 * divide by, and one whose loss or gradient is not finite; then the weights are as before, as they are after any other
 * error. Memory is taken only when parts are larger, or more, than any before. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "context/binding.h"
#include "base/error.h"
#include "base/numbers.h"
#include "train/trainer_parts.h"
#include "walk/walk.h"

static tfm_status check_cancelled(const tfm_trainer *t, tfm_error *error) {
  return atomic_load(&t->cancelled) ? tfm_refuse(error, TFM_E_CANCELLED, "the step was cancelled") : TFM_OK;
}

// ---- a run ----

typedef struct Run {
  tfm_trainer *t;
  const tfm_train_graph *graph;
  tfm_context *context; /* NULL: the engine's functions */
  const tfm_train_parts *parts;
  int64_t part, first_item, items;
} Run;

void training_read_sizes(const tfm_training *training, const void *args, int64_t *sizes) {
  for (uint32_t i = 0; i < training->n_sizes; i++)
    memcpy(&sizes[i], (const char *)args + training->sizes[i], sizeof sizes[i]);
}

static const tfm_value *value_of_part(const Run *run, uint32_t input) {
  return &run->parts->values[run->part * run->t->training->n_inputs + input];
}

static const char *args_of(const Run *run) {
  return (const char *)run->parts->args + (size_t)run->part * run->parts->stride;
}

/* Sizes from axes that are one size and nothing more. Whether all axes agree is looked at when their shapes are
 * compared with those that follow from the sizes. */
void training_find_sizes(const tfm_train_graph *graph, const tfm_program *program, const tfm_value *values,
                         int64_t *sizes) {
  for (uint32_t i = 0; i < program->n_inputs; i++) {
    const tfm_train_input *input = &graph->inputs[i];
    const tfm_value *value = input->source == TFM_FROM_BATCH ? &values[input->number] : NULL;
    const bool fits = value && value->dims && value->rank == program->inputs[i].rank;
    for (int32_t axis = 0; fits && axis < value->rank; axis++) {
      const tfm_polynomial *size = &program->polynomials[program->inputs[i].dims[axis]];
      const tfm_term *term = &program->terms[size->first_term];
      if (size->n_terms == 1 && term->coefficient == 1 && term->degree == 1 && term->symbols[0] < TFM_FIRST_FLOOR)
        sizes[term->symbols[0]] = value->dims[axis];
    }
  }
}

static tfm_status bind_context(Run *run, tfm_error *error) {
  tfm_trainer *t = run->t;
  const tfm_program *program = run->context->program;
  memset(t->sizes, 0, t->training->n_sizes * sizeof *t->sizes);
  if (run->parts->values)
    training_find_sizes(run->graph, program, value_of_part(run, 0), t->sizes);
  else
    training_read_sizes(t->training, args_of(run), t->sizes);
  tfm_status status = context_bind_symbols(run->context, t->sizes, error);
  if (status) return status;
  for (uint32_t i = 0; i < program->n_inputs; i++) {
    if (run->graph->inputs[i].source == TFM_FROM_BATCH && run->parts->values) continue;
    t->values[i].dims = run->context->binding.input_dims + (size_t)i * TFM_MAX_RANK;
    t->values[i].dtype = program->inputs[i].dtype;
    t->values[i].rank = program->inputs[i].rank;
  }
  run->items = t->training->batch == TFM_NONE ? 0 : t->sizes[t->training->batch];
  return TFM_OK;
}

static int64_t value_elements(const tfm_value *value) {
  int64_t n = 1;
  for (int32_t axis = 0; axis < value->rank; axis++) n *= value->dims[axis];
  return n;
}

enum { MASK_ALIGNMENT = 64 };

/* One without elements has a place too. */
static int64_t mask_bytes(const tfm_value *mask) {
  return round_up(greatest_of(1, value_elements(mask)), MASK_ALIGNMENT);
}

tfm_status training_reserve_masks(tfm_trainer *t, const tfm_train_graph *graph, const tfm_value *inputs,
                                  tfm_error *error) {
  int64_t bytes = 0;
  for (uint32_t i = 0; i < graph->n_inputs; i++)
    if (graph->inputs[i].source == TFM_FROM_DROPOUT) bytes += mask_bytes(&inputs[i]);
  if (bytes <= t->mask_bytes) return TFM_OK;
  char *more = allocate_large(&t->allocator, &bytes);
  if (!more) return tfm_refuse(error, TFM_E_NOMEM, "no memory for %lld bytes of dropout", (long long)bytes);
  release(&t->allocator, t->masks, (size_t)t->mask_bytes);
  t->masks = more;
  t->mask_bytes = bytes;
  return TFM_OK;
}

/* Masks that nothing reads are given without being drawn. */
static tfm_status give_masks(const Run *run, tfm_error *error) {
  tfm_trainer *t = run->t;
  const tfm_status status = training_reserve_masks(t, run->graph, t->values, error);
  if (status) return status;
  char *at = t->masks;
  const MaskPlace place = {t->seed, (uint32_t)(t->t + 1), run->first_item,
                           run->context ? run->context->program->features : 0};
  for (uint32_t i = 0; i < run->graph->n_inputs; i++) {
    const tfm_train_input *input = &run->graph->inputs[i];
    if (input->source != TFM_FROM_DROPOUT) continue;
    t->values[i].data = at;
    if (run->graph->draws)
      draw_mask(t->pool, &t->training->dropouts[input->number], t->values[i].dims, &place, (uint8_t *)at);
    at += mask_bytes(&t->values[i]);
  }
  return TFM_OK;
}

static void give_inputs(const Run *run) {
  tfm_trainer *t = run->t;
  for (uint32_t i = 0; i < run->graph->n_inputs; i++) {
    const tfm_train_input *input = &run->graph->inputs[i];
    tfm_value *value = &t->values[i];
    *value = (tfm_value){.dims = t->dims + (size_t)i * TFM_MAX_RANK};
    if (input->source == TFM_FROM_BATCH && run->parts->values) {
      *value = *value_of_part(run, input->number);
    } else if (input->source == TFM_FROM_BATCH) {
      memcpy(&value->data, args_of(run) + t->training->inputs[input->number], sizeof value->data);
    } else if (input->source == TFM_FROM_SEED) {
      value->data = &t->seeds[input->number];
    } else if (input->source == TFM_FROM_PARAMETER) {
      const tfm_parameter *p = &t->training->parameters[input->number];
      *value = (tfm_value){.data = t->blocks[TFM_TENSOR_WEIGHT] + p->offset, .rank = p->rank, .dims = p->dims};
    }
  }
}

/* As tfm_context_run, for a context that is bound. A cancellation that came before is not forgotten. */
static tfm_status run_context(const Run *run, tfm_error *error) {
  tfm_context *context = run->context;
  const tfm_program *program = context->program;
  tfm_status status = context_set_inputs(context, run->t->values, error);
  if (!status) status = ids_check_inputs(context, run->t->values, error);
  if (status) return status;
  for (uint32_t i = 0; i < program->n_inputs; i++) context->run.callers[i] = run->t->values[i].data;
  for (uint32_t i = 0; i < program->n_outputs; i++)
    context->run.callers[program->n_inputs + i] = run->t->results[i].data;
  run_forget_cancelled(context);
  status = check_cancelled(run->t, error);
  return status ? status : run_steps(context, error);
}

/* Runs a graph on a part, to where `results` of the trainer say. */
static tfm_status run_step_part(Run *run, tfm_error *error) {
  tfm_trainer *t = run->t;
  const tfm_train_engine *engine = &t->engine;
  give_inputs(run);
  tfm_status status = check_cancelled(t, error);
  if (!status)
    status =
        run->context ? bind_context(run, error) : engine->bind(engine->user, run->graph, t->values, &run->items, error);
  if (!status) status = give_masks(run, error);
  if (status) return status;
  return run->context ? run_context(run, error) : engine->run(engine->user, run->graph, t->values, t->results, error);
}

// ---- results ----

/* Which part it was, and what computed ids may be: programs know neither. */
static tfm_status explain(const tfm_trainer *t, tfm_status status, int64_t part, tfm_error *error) {
  if (!error || status == TFM_E_CANCELLED || status == TFM_E_NOMEM) return status;
  const size_t length = strlen(error->message);
  snprintf(error->message + length, sizeof error->message - length, "%sin step %lld, in batch %lld of it%s",
           length ? "; " : "", (long long)t->t + 1, (long long)part,
           error->reason == TFM_REASON_VALUE
               ? "; the labels of cross_entropy are ids too, all but those that are its ignore_index"
               : "");
  return status;
}

/* A loss without a value is an error; a metric is NaN then. */
static tfm_status check_divisors(tfm_trainer *t, const tfm_objective *objective, tfm_error *error) {
  const tfm_train_result *loss = &objective->results[0];
  if (!mixture_lacks_divisor(t, objective)) return TFM_OK;
  return tfm_fail(error, TFM_E_INPUT, TFM_REASON_CHECK, NULL,
                  "'%s' has no value in step %lld: what it is divided by is 0, so there is no label that counts",
                  loss->name, (long long)t->t + 1);
}

// ---- sums over parts, shards, ranks ----

/* The parts of a rank are cut into equal shards, each a chain of its own. Shards are added as a binary tree of
 * neighbours: at depth d of the tree stands the sum of one subtree, in numbers[d] and gradients[d]. */
typedef struct Sum {
  Run run;
  double *numbers; /* [depth][n_numbers]: those of rank 0 among the outputs */
  uint32_t n_numbers;
  const uint8_t *once; /* by number: only that of the first part of the first rank counts; NULL: all count */
  bool has_gradients;
  int64_t parts_of_shard;
} Sum;

static void add_floats(void *argument, PoolMember *member) {
  float *const *blocks = argument;
  float *sum = blocks[0];
  const float *more = blocks[1];
  const int64_t n = (int64_t)((const tfm_trainer *)(const void *)blocks[2])->training->trained_floats;
  for (int64_t i = n * member->thread / member->active; i < n * (member->thread + 1) / member->active; i++)
    sum[i] += more[i];
}

static void add_gradients(tfm_trainer *t, float *sum, float *more) {
  float *blocks[] = {sum, more, (float *)(void *)t};
  train_share(t->pool, add_floats, blocks);
}

/* Whether the program adds the gradient of a further part to what is there. */
static bool goes_on(const tfm_trainer *t, const tfm_parameter *p) {
  const tfm_context *context = t->engine.step_tops;
  return context && context->program->outputs[p->gradient].goes_on;
}

/* The gradients of a shard's first part go to its sums, and those of others that do not go on there beside them. Those
 * that do keep there what they need until the last part. */
static void aim_gradients(tfm_trainer *t, float *sums, bool is_first, bool is_last) {
  for (uint32_t i = 0; i < t->training->n_parameters; i++) {
    const tfm_parameter *p = &t->training->parameters[i];
    if (p->gradient == TFM_NONE) continue;
    t->results[p->gradient] = (tfm_value){.data = (is_first || goes_on(t, p) ? sums : t->part) + p->trained};
    if (!is_first || !is_last) t->rests[p->gradient] = t->part + p->trained;
  }
  if (!t->engine.step_tops) return;
  RunState *run = &t->engine.step_tops->run;
  run->goes_on = !is_first;
  run->waits = !is_last;
  run->turn = !run->turn;
  run->rests = is_first && is_last ? NULL : t->rests;
}

/* Adds those of a part that were made beside the sums. */
static void add_part(const tfm_trainer *t, float *sums) {
  for (uint32_t i = 0; i < t->training->n_parameters; i++) {
    const tfm_parameter *p = &t->training->parameters[i];
    if (p->gradient == TFM_NONE || goes_on(t, p)) continue;
    for (uint64_t k = p->trained; k < p->trained + (uint64_t)p->elements; k++) sums[k] += t->part[k];
  }
}

static tfm_status make_block(tfm_trainer *t, float **block, tfm_error *error) {
  int64_t bytes = (int64_t)(t->training->trained_floats * sizeof(float));
  if (*block) return TFM_OK;
  *block = allocate_room(&t->allocator, &bytes);
  t->block_bytes = bytes;
  if (!*block) return tfm_refuse(error, TFM_E_NOMEM, "no memory for the gradients of several parts");
  memset(*block, 0, (size_t)t->training->trained_floats * sizeof(float));
  return TFM_OK;
}

static float *gradients_at(tfm_trainer *t, int depth) {
  return depth ? t->levels[depth] : t->blocks[TFM_TENSOR_GRADIENT];
}

static tfm_status sum_shard(Sum *s, int64_t shard, int depth, tfm_error *error) {
  tfm_trainer *t = s->run.t;
  double *numbers = s->numbers + (size_t)depth * s->n_numbers;
  const int64_t from = shard * s->parts_of_shard, to = from + s->parts_of_shard;
  memset(numbers, 0, s->n_numbers * sizeof *numbers);
  for (uint32_t k = 0; k < s->n_numbers; k++) t->results[k] = (tfm_value){.data = &t->outputs[k]};
  for (int64_t i = from; i < to; i++) {
    if (s->has_gradients) aim_gradients(t, gradients_at(t, depth), i == from, i + 1 == to);
    const bool is_first = i == 0 && t->ranks.rank == 0;
    s->run.part = i;
    if (s->has_gradients) mixture_give_seeds(t, is_first);
    const tfm_status status = run_step_part(&s->run, error);
    if (status) return explain(t, status, i, error);
    for (uint32_t k = 0; k < s->n_numbers; k++)
      if (is_first || !s->once || !s->once[k]) numbers[k] += (double)t->outputs[k];
    if (s->has_gradients && i > from) add_part(t, gradients_at(t, depth));
    s->run.first_item += s->run.items;
  }
  return TFM_OK;
}

static tfm_status sum_tree(Sum *s, int64_t first, int64_t n, int depth, tfm_error *error) {
  tfm_trainer *t = s->run.t;
  if (n == 1) return sum_shard(s, first, depth, error);
  tfm_status status = s->has_gradients ? make_block(t, &t->levels[depth + 1], error) : TFM_OK;
  if (!status) status = sum_tree(s, first, n / 2, depth, error);
  if (!status) status = sum_tree(s, first + n / 2, n / 2, depth + 1, error);
  if (status) return status;
  double *numbers = s->numbers + (size_t)depth * s->n_numbers;
  for (uint32_t k = 0; k < s->n_numbers; k++) numbers[k] += numbers[s->n_numbers + k];
  if (s->has_gradients) add_gradients(t, gradients_at(t, depth), gradients_at(t, depth + 1));
  return TFM_OK;
}

static tfm_status hook_failed(tfm_status status, const char *name, tfm_error *error) {
  return tfm_fail(error, status, TFM_REASON_OTHER, NULL, "%s, the function of the caller, failed", name);
}

/* With `exchange` the tree goes on: partners add the same two numbers, so they get the same bits. */
static tfm_status sum_ranks(tfm_trainer *t, void *data, void *other, int64_t n, bool is_double, tfm_error *error) {
  const Ranks *ranks = &t->ranks;
  if (ranks->ranks < 2 || !n) return TFM_OK;
  if (!ranks->exchange) {
    const tfm_status status = ranks->sum(ranks->user, data, n, is_double);
    return status ? hook_failed(status, "sum", error) : TFM_OK;
  }
  const int64_t bytes = n * (int64_t)(is_double ? sizeof(double) : sizeof(float));
  for (int32_t bit = 1; bit < ranks->ranks; bit *= 2) {
    const tfm_status status = ranks->exchange(ranks->user, ranks->rank ^ bit, data, other, bytes);
    if (status) return hook_failed(status, "exchange", error);
    if (!is_double) add_gradients(t, data, other);
    for (int64_t i = 0; is_double && i < n; i++) ((double *)data)[i] += ((const double *)other)[i];
  }
  return TFM_OK;
}

static const uint8_t *once_of(const tfm_trainer *t, const tfm_train_graph *graph) {
  const tfm_objective *step = &t->training->step, *evaluation = &t->training->evaluation;
  return graph == &step->tops            ? step->tops_once
         : graph == &step->bottoms       ? step->bottoms_once
         : graph == &evaluation->tops    ? evaluation->tops_once
         : graph == &evaluation->bottoms ? evaluation->bottoms_once
                                         : NULL;
}

typedef struct Total { /* what is summed over all parts */
  const tfm_train_graph *graph;
  tfm_context *context;
  double *numbers; /* outputs of rank 0 come to the first ones */
  uint32_t n;
} Total;

/* Over all ranks; in a step, gradients too. */
static tfm_status sum_all(tfm_trainer *t, Total total, const tfm_train_parts *parts, int64_t first_item,
                          tfm_error *error) {
  const tfm_train_graph *graph = total.graph;
  const bool has_gradients = graph == &t->training->step.tops;
  const int64_t shards = t->ranks.shards;
  Sum s = {.run = {.t = t, .graph = graph, .context = total.context, .parts = parts, .first_item = first_item},
           .numbers = total.numbers,
           .n_numbers = total.n,
           .once = once_of(t, graph),
           .has_gradients = has_gradients,
           .parts_of_shard = parts->n / shards};
  const bool needs_other = has_gradients && (s.parts_of_shard > 1 || t->ranks.exchange);
  if (!graph->n_outputs) return TFM_OK;
  tfm_status status = needs_other ? make_block(t, &t->part, error) : TFM_OK;
  if (!status) status = sum_tree(&s, 0, shards, 0, error);
  if (!status && has_gradients)
    status = sum_ranks(t, t->blocks[TFM_TENSOR_GRADIENT], t->part, (int64_t)t->training->trained_floats, false, error);
  return status ? status : sum_ranks(t, total.numbers, total.numbers + total.n, total.n, true, error);
}

static tfm_status check_parts(const tfm_trainer *t, const tfm_train_parts *parts, tfm_error *error) {
  if (parts->n < 1) return tfm_refuse(error, TFM_E_USAGE, "a step needs at least one part");
  if (parts->n % t->ranks.shards)
    return tfm_refuse(error, TFM_E_USAGE, "%lld parts cannot be cut into %d shards of equally many",
                      (long long)parts->n, t->ranks.shards);
  const char *place = t->training->whole, *why = t->training->whole_why;
  if ((place || why) && (parts->n > 1 || t->ranks.ranks > 1))
    return tfm_fail(error, TFM_E_INPUT, TFM_REASON_CHECK, place, "%s: give one part, on one rank",
                    why ? why : "items are mixed here");
  return TFM_OK;
}

tfm_status tfm_train_gradients(tfm_trainer *t, const tfm_train_parts *parts, int64_t first_item, double *results,
                                 tfm_error *error) {
  const tfm_objective *objective = &t->training->step;
  const tfm_train_engine *engine = &t->engine;
  t->has_gradients = false;
  atomic_store(&t->cancelled, false);
  tfm_status status = check_parts(t, parts, error);
  const Total bottoms = {&objective->bottoms, engine->step_bottoms, t->bottoms, objective->bottoms.n_outputs};
  if (!status) status = sum_all(t, bottoms, parts, first_item, error);
  if (!status) status = check_divisors(t, objective, error);
  if (status) return status;
  mixture_find_seeds(t);
  if (engine->step_tops) engine->step_tops->run.flushes = true;
  const Total tops = {&objective->tops, engine->step_tops, t->tops, objective->n_tops};
  status = sum_all(t, tops, parts, first_item, error);
  if (status) return status;
  mixture_results(t, objective, results);
  t->loss = results[0];
  t->has_gradients = true;
  return tfm_succeed(error);
}

tfm_status tfm_train_evaluate(tfm_trainer *t, const tfm_train_parts *parts, double *results, tfm_error *error) {
  const tfm_objective *objective = &t->training->evaluation;
  atomic_store(&t->cancelled, false);
  tfm_status status = check_parts(t, parts, error);
  const Total bottoms = {&objective->bottoms, t->engine.bottoms, t->bottoms, objective->bottoms.n_outputs};
  const Total tops = {&objective->tops, t->engine.tops, t->tops, objective->n_tops};
  if (!status) status = sum_all(t, bottoms, parts, 0, error);
  if (!status) status = check_divisors(t, objective, error);
  if (!status) status = sum_all(t, tops, parts, 0, error);
  if (status) return status;
  mixture_results(t, objective, results);
  return tfm_succeed(error);
}

/* Weights that were equal stay so; what ranks do not have in common is a fault of the machine or of a caller that gave
 * them different things. Numbers below 2^32 are added exactly. */
static tfm_status compare_ranks(tfm_trainer *t, tfm_error *error) {
  enum { EVERY = 100 };
  uint64_t h = 14695981039346656037u; /* FNV-1a, of words */
  if (t->ranks.ranks < 2 || t->t % EVERY) return TFM_OK;
  for (uint64_t i = 0; i < t->training->floats; i++) {
    uint32_t word;
    memcpy(&word, &t->blocks[TFM_TENSOR_WEIGHT][i], sizeof word);
    h = (h ^ word) * 1099511628211u;
  }
  const double own = (double)(uint32_t)(h >> 32);
  double sum[2] = {own, 0};
  tfm_status status = sum_ranks(t, sum, sum + 1, 1, true, error);
  sum[0] = sum[0] != own * t->ranks.ranks;
  if (!status) status = sum_ranks(t, sum, sum + 1, 1, true, error);
  if (status || sum[0] == 0) return status;
  return tfm_refuse(error, TFM_E_USAGE, "the ranks do not have the same weights after step %lld", (long long)t->t);
}

tfm_status tfm_train_update(tfm_trainer *t, double loss, double *norm, double *rate, tfm_error *error) {
  const tfm_train_settings *s = &t->settings;
  if (!t->has_gradients) return tfm_refuse(error, TFM_E_USAGE, "there are no gradients to update the weights with");
  t->has_gradients = false;
  *norm = optimizer_norm(t);
  if (!isfinite(loss) || !isfinite(*norm))
    return tfm_fail(error, TFM_E_DIVERGED, TFM_REASON_CHECK, NULL,
                    "training diverged in step %lld: the loss is %g, the norm of the gradient %g; a smaller lr, warmup "
                    "or clip_norm may help",
                    (long long)t->t + 1, loss, *norm);
  t->t++;
  *rate = optimizer_rate(s, t->t - t->head.origin.schedule, t->epoch - t->head.origin.epoch);
  optimizer_update(t, s->clip_norm > 0 ? lesser_of(1, s->clip_norm / (*norm + 1e-6)) : 1, *rate);
  const tfm_status status = compare_ranks(t, error);
  return status ? status : tfm_succeed(error);
}

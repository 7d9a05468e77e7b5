/* Steps of training: gradients over the parts of a step, the update, and results without either.
 *
 * In: a trainer, parts of a batch. Out: results of the objective, gradients, weights that have been trained. The parts
 * of a step count as one: what their losses are divided by is added up first. Refused: a step without anything to
 * divide by, and one whose loss or gradient is not finite; then the weights are as before, as they are after any other
 * error. Memory is taken only when parts are larger, or more, than any before.
 *
 * tfm_trainer_step (trainer_calls.c) calls:
 *
 *   tfm_train_gradients       step.c
 *     sum_all of bottoms      what losses are divided by, of all parts, before any gradient
 *     sum_all of tops         a program with both halves, forward and back: its results, and gradients
 *       sum_shard, sum_tree   parts after each other; shards, then ranks, as a tree
 *         run_bind            part_run.c: inputs, sizes, masks of dropout
 *         run_bound           the program's steps (walk/walk.c): step_attention_grad is one of them
 *     mixture_results         mixture.c
 *   tfm_train_update          step.c: the norm, the rate; optimizer_update of vectors/formulas.c
 *
 * Where results mix the items of several parts, joined.c runs other graphs in place of tops. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/numbers.h"
#include "train/trainer_parts.h"

// ---- results ----

/* Which part it was, and what computed ids may be: programs know neither. */
tfm_status step_explain(const tfm_trainer *t, tfm_status status, int64_t part, tfm_error *error) {
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
  const uint32_t *outputs; /* of gradients, by parameter; NULL: as the parameters say */
  int64_t parts_of_shard;
} Sum;

static void add_floats(void *argument, PoolMember *member) {
  float *const *blocks = argument;
  float *sum = blocks[0];
  const float *more = blocks[1];
  const int64_t n = (int64_t)((const tfm_trainer *)(const void *)blocks[2])->training->floats;
  for (int64_t i = n * member->thread / member->active; i < n * (member->thread + 1) / member->active; i++)
    sum[i] += more[i];
}

static void add_gradients(tfm_trainer *t, float *sum, float *more) {
  float *blocks[] = {sum, more, (float *)(void *)t};
  train_share(t->pool, add_floats, blocks);
}

/* The output that is the gradient of a parameter; TFM_NONE: there is none. */
static uint32_t output_of(const Sum *s, uint32_t parameter) {
  return s->outputs ? s->outputs[parameter] : s->run.t->training->parameters[parameter].gradient;
}

/* Whether the program adds the gradient of a further part to what is there. */
static bool goes_on(const Sum *s, uint32_t output) {
  const tfm_context *context = s->run.context;
  return context && context->program->outputs[output].goes_on;
}

/* The gradients of a shard's first part go to its sums, and those of others that do not go on there beside them. Those
 * that do keep there what they need until the last part. */
static void aim_gradients(const Sum *s, float *sums, bool is_first, bool is_last) {
  tfm_trainer *t = s->run.t;
  for (uint32_t i = 0; i < t->training->n_parameters; i++) {
    const uint64_t place = t->training->parameters[i].offset;
    const uint32_t output = output_of(s, i);
    if (output == TFM_NONE) continue;
    t->results[output] = (tfm_value){.data = NULL};
    if (t->training->parameters[i].gradient == TFM_NONE) continue; /* zeroes, of a weight that metrics alone reach */
    t->results[output] = (tfm_value){.data = (is_first || goes_on(s, output) ? sums : t->part) + place};
    if (!is_first || !is_last) t->rests[output] = t->part + place;
  }
  if (!s->run.context) return;
  RunState *run = &s->run.context->run;
  run->goes_on = !is_first;
  run->waits = !is_last;
  run->turn = !run->turn;
  run->rests = is_first && is_last ? NULL : t->rests;
}

/* Adds those of a part that were made beside the sums. */
static void add_part(const Sum *s, float *sums) {
  const tfm_trainer *t = s->run.t;
  for (uint32_t i = 0; i < t->training->n_parameters; i++) {
    const tfm_parameter *p = &t->training->parameters[i];
    const uint32_t output = output_of(s, i);
    if (output == TFM_NONE || p->gradient == TFM_NONE || goes_on(s, output)) continue;
    for (uint64_t k = p->offset; k < p->offset + (uint64_t)p->elements; k++) sums[k] += t->part[k];
  }
}

static tfm_status make_block(tfm_trainer *t, float **block, tfm_error *error) {
  int64_t bytes = (int64_t)(t->training->floats * sizeof(float));
  if (*block) return TFM_OK;
  *block = allocate_room(&t->allocator, &bytes);
  t->block_bytes = bytes;
  if (!*block) return tfm_refuse(error, TFM_E_NOMEM, "no memory for the gradients of several parts");
  if (t->allocator.allocate) memset(*block, 0, (size_t)t->training->floats * sizeof(float));
  return TFM_OK;
}

static float *gradients_at(tfm_trainer *t, int depth) {
  return depth ? t->levels[depth] : t->blocks[TFM_TENSOR_GRADIENT];
}

/* Where the results of a part go, and what flows back to it. */
static void aim_part(const Sum *s, int64_t part, float *sums, bool is_first, bool is_last) {
  tfm_trainer *t = s->run.t;
  if (s->has_gradients) aim_gradients(s, sums, is_first, is_last);
  if (s->outputs)
    mixer_of(t)->aim_part(t, part);
  else if (s->has_gradients)
    mixture_give_seeds(t, part == 0 && t->ranks.rank == 0);
}

static tfm_status run_one(Run *run, tfm_error *error) {
  const tfm_status status = run_bind(run, error);
  return status ? status : run_bound(run, error);
}

static tfm_status sum_shard(Sum *s, int64_t shard, int depth, tfm_error *error) {
  tfm_trainer *t = s->run.t;
  double *numbers = s->numbers + (size_t)depth * s->n_numbers;
  float *gradients = s->has_gradients ? gradients_at(t, depth) : NULL;
  const int64_t from = shard * s->parts_of_shard, to = from + s->parts_of_shard;
  memset(numbers, 0, s->n_numbers * sizeof *numbers);
  if (s->outputs) memset(gradients, 0, t->training->floats * sizeof *gradients); /* of weights without any */
  for (uint32_t k = 0; k < s->n_numbers; k++) t->results[k] = (tfm_value){.data = &t->outputs[k]};
  for (int64_t i = from; i < to; i++) {
    const bool is_first = i == 0 && t->ranks.rank == 0;
    s->run.part = i;
    aim_part(s, i, gradients, i == from, i + 1 == to);
    const tfm_status status = run_one(&s->run, error);
    if (status) return step_explain(t, status, i, error);
    for (uint32_t k = 0; k < s->n_numbers; k++)
      if (is_first || !s->once || !s->once[k]) numbers[k] += (double)t->outputs[k];
    if (s->has_gradients && i > from) add_part(s, gradients);
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
tfm_status sum_ranks(tfm_trainer *t, void *data, void *other, int64_t n, bool is_double, tfm_error *error) {
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
  const tfm_train_mixture *mixture = &t->training->step.mixture;
  const bool is_back = graph == &mixture->back, has_gradients = is_back || graph == &t->training->step.tops;
  const int64_t shards = t->ranks.shards;
  Sum s = {.run = {.t = t, .graph = graph, .context = total.context, .parts = parts, .first_item = first_item},
           .numbers = total.numbers,
           .n_numbers = total.n,
           .once = once_of(t, graph),
           .has_gradients = has_gradients,
           .outputs = is_back ? mixture->back_gradients : NULL,
           .parts_of_shard = parts->n / shards};
  const bool needs_other = has_gradients && (s.parts_of_shard > 1 || t->ranks.exchange);
  if (!graph->n_outputs) return TFM_OK;
  tfm_status status = needs_other ? make_block(t, &t->part, error) : TFM_OK;
  if (!status) status = sum_tree(&s, 0, shards, 0, error);
  if (!status && has_gradients)
    status = sum_ranks(t, t->blocks[TFM_TENSOR_GRADIENT], t->part, (int64_t)t->training->floats, false, error);
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

/* Results that mix items need all of them at once: in parts they are computed by two passes. */
static bool is_mixed_of_parts(const tfm_trainer *t, const tfm_objective *objective, const tfm_train_parts *parts) {
  return objective->mixture.n_cuts && (parts->n > 1 || t->ranks.ranks > 1);
}

/* Parts forwards, what mixes them, parts backwards. */
static tfm_status mixed_gradients(tfm_trainer *t, const tfm_train_parts *parts, int64_t first_item, double *results,
                                  tfm_error *error) {
  const tfm_train_mixture *mixture = &t->training->step.mixture;
  tfm_context *contexts[] = {t->engine.step_vectors, t->engine.step_whole, t->engine.step_back};
  const JoinedRequest request = {&t->training->step, contexts[0], contexts[1], parts, first_item};
  tfm_status status = mixer_of(t)->compute(t, &request, results, error);
  const Total back = {&mixture->back, contexts[2], t->tops, 0};
  if (!mixture->back.n_outputs)
    memset(t->blocks[TFM_TENSOR_GRADIENT], 0, t->training->floats * sizeof(float));
  if (!status) status = sum_all(t, back, parts, first_item, error);
  if (!status) mixer_of(t)->add_gradients(t, t->blocks[TFM_TENSOR_GRADIENT]);
  return status;
}

static tfm_status step_gradients(tfm_trainer *t, const tfm_train_parts *parts, int64_t first_item, double *results,
                                 tfm_error *error) {
  const tfm_objective *objective = &t->training->step;
  mixture_find_seeds(t);
  const Total tops = {&objective->tops, t->engine.step_tops, t->tops, objective->n_tops};
  const tfm_status status = sum_all(t, tops, parts, first_item, error);
  if (!status) mixture_results(t, objective, results);
  return status;
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
  if (!status)
    status = (is_mixed_of_parts(t, objective, parts) ? mixed_gradients : step_gradients)(t, parts, first_item, results,
                                                                                         error);
  if (status) return status;
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
  if (!status && is_mixed_of_parts(t, objective, parts)) {
    const JoinedRequest request = {objective, t->engine.vectors, t->engine.whole, parts, 0};
    return mixer_of(t)->compute(t, &request, results, error);
  }
  if (!status) status = sum_all(t, tops, parts, 0, error);
  if (status) return status;
  mixture_results(t, objective, results);
  return tfm_succeed(error);
}

/* Weights that were equal stay so, those that are not trained too; what ranks do not have in common is a fault of the
 * machine or of a caller that gave them different things. Numbers below 2^32 are added exactly. */
static tfm_status compare_ranks(tfm_trainer *t, tfm_error *error) {
  enum { EVERY = 100 };
  uint64_t h = 0;
  if (t->ranks.ranks < 2 || t->t % EVERY) return TFM_OK;
  for (uint32_t i = 0; i < t->training->n_parameters; i++) {
    const uint64_t of_weight = trainer_weight_hash(t, i);
    h = tfm_state_hash(h, &of_weight, sizeof of_weight);
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
  if (t->training->average) t->training->average(t, 1);
  optimizer_update(t, s->clip_norm > 0 ? lesser_of(1, s->clip_norm / (*norm + 1e-6)) : 1, *rate);
  if (t->training->average) t->training->average(t, 0);
  const tfm_status status = compare_ranks(t, error);
  return status ? status : tfm_succeed(error);
}

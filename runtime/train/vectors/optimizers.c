/* Steps of optimizers: schedules, the norm of gradients, sgd, adam and adamw; docs/training.md has their formulas.
 *
 * In: settings, gradients, the number of the step. Out: weights and moments, changed in place. The optimizers are those
 * of torch.optim: every operation is rounded alone, in f32; rates and corrections are computed in double. However
 * threads share the work, the numbers are the same: the sums of a chunk's squares are added in the order of chunks.
 * Refuses nothing. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/numbers.h"
#include "machine/fp_mode.h"
#include "machine/tuning.h"
#include "tfm/abi/double_functions.h"
#include "train/trainer_parts.h"

// ---- schedules ----

enum { CHUNK = 4096, LANES = 16 };
typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourWords __attribute__((vector_size(16)));

static const double HALF_TURN = 3.14159265358979323846;

double optimizer_rate(const tfm_train_settings *s, int64_t t, int64_t epoch) {
  const double lr = s->lr, step = (double)t, warmup = s->warmup;
  if (s->schedule == TFM_SCHEDULE_NOAM)
    return lr / sqrt(s->model_size) * lesser_of(1 / sqrt(step), step / double_pow(warmup, 1.5));
  if (s->schedule == TFM_SCHEDULE_INVERSE_SQRT) return lr * lesser_of(step / warmup, sqrt(warmup / step));
  if (step <= warmup) return lr * step / warmup;
  if (s->schedule == TFM_SCHEDULE_EXPONENTIAL) return lr * double_pow(s->gamma, (double)epoch);
  if (s->schedule == TFM_SCHEDULE_CONSTANT) return lr;
  const double part = lesser_of(1, (step - warmup) / (s->steps - warmup));
  const double share = s->schedule == TFM_SCHEDULE_LINEAR ? 1 - part : (1 + double_cos(HALF_TURN * part)) / 2;
  return s->final_lr + (lr - s->final_lr) * share;
}

// ---- chunks ----

static int64_t chunks_of(const tfm_parameter *p) {
  return p->gradient == TFM_NONE ? 0 : (p->elements + CHUNK - 1) / CHUNK;
}

int64_t optimizer_chunks(const tfm_training *training) {
  int64_t n = 0;
  for (uint32_t i = 0; i < training->n_parameters; i++) n += chunks_of(&training->parameters[i]);
  return n;
}

typedef struct Chunk { /* n elements of one parameter, from `at` on in each block */
  const tfm_parameter *parameter;
  int64_t number, n;
  uint64_t at;
} Chunk;

typedef struct OptimizerJob {
  tfm_trainer *trainer;
  double clip, rate;
  tfm_optimizer_work *work;
} Job;

/* Each thread takes an equal part of the chunks. */
static void walk_job(void *argument, PoolMember *member) {
  const Job *job = argument;
  const tfm_training *training = job->trainer->training;
  const int64_t n = job->trainer->n_chunks;
  const int64_t from = n * member->thread / member->active, to = n * (member->thread + 1) / member->active;
  int64_t number = 0;
  const uint64_t fp_mode = fp_mode_enter();
  for (uint32_t i = 0; i < training->n_parameters && number < to; i++) {
    const tfm_parameter *p = &training->parameters[i];
    const int64_t chunks = chunks_of(p);
    for (int64_t k = greatest_of(from - number, 0); k < chunks && number + k < to; k++) {
      const uint64_t from_first = (uint64_t)(k * CHUNK);
      const Chunk chunk = {p, number + k, least_of(p->elements - k * CHUNK, CHUNK), p->offset + from_first};
      job->work(job, &chunk);
    }
    number += chunks;
  }
  fp_mode_leave(fp_mode);
}

static void share_job(tfm_trainer *t, Job job) {
  train_share(t->n_chunks < CHUNKS_WORTH_SHARING ? NULL : t->pool, walk_job, &job);
}

// ---- the norm ----

/* Each lane adds SQUARES / LANES numbers in f32; what the lanes give is added in double. */
enum { SQUARES = 512 };

static double sum_of_squares(const float *values, int64_t n) {
  Four sums[LANES / 4] = {{0}}; /* in registers, which an array of single lanes is not */
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    __builtin_prefetch(values + i + OPTIMIZER_AHEAD);
#pragma GCC unroll 4
    for (int k = 0; k < LANES / 4; k++) {
      Four more;
      memcpy(&more, values + i + 4 * k, sizeof more);
      sums[k] += more * more;
    }
  }
  float lanes[LANES];
  memcpy(lanes, sums, sizeof lanes);
  for (; i < n; i++) lanes[i % LANES] += values[i] * values[i];
  double sum = 0;
  for (int lane = 0; lane < LANES; lane++) sum += (double)lanes[lane];
  return sum;
}

static void add_squares(const Job *job, const Chunk *chunk) {
  const float *values = job->trainer->blocks[TFM_TENSOR_GRADIENT] + chunk->at;
  double sum = 0;
  for (int64_t i = 0; i < chunk->n; i += SQUARES) sum += sum_of_squares(values + i, least_of(chunk->n - i, SQUARES));
  job->trainer->chunk_sums[chunk->number] = sum;
}

double optimizer_norm(tfm_trainer *t) {
  share_job(t, (Job){.trainer = t, .work = add_squares});
  double squares = 0;
  for (int64_t i = 0; i < t->n_chunks; i++) squares += t->chunk_sums[i];
  return sqrt(squares);
}

// ---- the optimizers ----

/* Of gradients and first moments: what is smaller moves no weight. A moment that nothing is added to would sink below
 * the normal numbers, which are a hundred times faster, and stay there. */
static inline float dropping(float x) { return fabsf(x) < 0x1p-100f ? 0 : x; }

static double decay_of(const tfm_trainer *t, const Chunk *chunk) {
  return chunk->parameter->decays ? t->settings.weight_decay : 0;
}

static double rate_of(const Job *job, const Chunk *chunk) { return job->rate * chunk->parameter->rate; }

/* m = g at first, then m mu + g; g becomes what the weight moves by. */
static void add_momentum(const tfm_trainer *t, float *restrict m, float *restrict g, int64_t n) {
  const float mu = (float)t->settings.momentum;
  if (t->t - t->head.origin.optimizer == 1) memcpy(m, g, (size_t)n * sizeof *m);
  else
    for (int64_t i = 0; i < n; i++) m[i] = dropping(m[i] * mu + g[i]);
  if (!t->settings.nesterov) memcpy(g, m, (size_t)n * sizeof *g);
  else
    for (int64_t i = 0; i < n; i++) g[i] = g[i] + mu * m[i];
}

/* Step by step in the nearest cache: one loop for all settings would be five times the code. */
void tfm_optimize_sgd(const Job *job, const Chunk *chunk) {
  enum { AT_ONCE = 512 };
  const tfm_trainer *t = job->trainer;
  const float clip = (float)job->clip, decay = (float)decay_of(t, chunk), rate = (float)rate_of(job, chunk);
  float g[AT_ONCE];
  for (int64_t from = 0; from < chunk->n; from += AT_ONCE) {
    const uint64_t at = chunk->at + (uint64_t)from;
    const int64_t n = least_of(chunk->n - from, AT_ONCE);
    const float *restrict gradient = t->blocks[TFM_TENSOR_GRADIENT] + at;
    float *restrict weight = t->blocks[TFM_TENSOR_WEIGHT] + chunk->at + from;
    for (int64_t i = 0; i < n; i++) g[i] = dropping(gradient[i] * clip);
    for (int64_t i = 0; i < n && decay != 0; i++) g[i] = g[i] + weight[i] * decay;
    if (t->blocks[TFM_TENSOR_FIRST]) add_momentum(t, t->blocks[TFM_TENSOR_FIRST] + at, g, n);
    for (int64_t i = 0; i < n; i++) weight[i] = weight[i] - rate * g[i];
  }
}

static inline Four load_four(const float *from) {
  Four four;
  memcpy(&four, from, sizeof four);
  return four;
}

static inline Four without(Four x, FourWords dropped) { return (Four)((FourWords)x & ~dropped); }

static inline Four dropping_four(Four x) { return without(x, (x < 0x1p-100f) & (x > -0x1p-100f)); }

static inline Four root_of_four(Four x) { return (Four){sqrtf(x[0]), sqrtf(x[1]), sqrtf(x[2]), sqrtf(x[3])}; }

typedef struct AdamStep {
  float clip, decay, shrink, rest1, beta2, rest2, rate, correction, eps;
} AdamStep;

/* As vectors: no compiler makes them of the loop. */
static inline void adam_four(const AdamStep *s, const float *gradient, float *weight, float *first, float *second) {
  Four p = load_four(weight) * s->shrink, g = dropping_four(load_four(gradient) * s->clip), m = load_four(first);
  if (s->decay != 0) g = g + p * s->decay;
  m = dropping_four(m + (g - m) * s->rest1);
  Four v = load_four(second) * s->beta2 + s->rest2 * (g * g);
  v = without(v, v < FLT_MIN);
  p = p - s->rate * (m / (root_of_four(v) * s->correction + s->eps));
  memcpy(first, &m, sizeof m);
  memcpy(second, &v, sizeof v);
  memcpy(weight, &p, sizeof p);
}

/* The last ones of a parameter, less than four, with zeroes behind. */
static void adam_rest(const AdamStep *s, const float *gradient, float *const changed[3], int64_t n) {
  const size_t bytes = (size_t)n * sizeof *gradient;
  float padded[4][4] = {{0}};
  memcpy(padded[3], gradient, bytes);
  for (int i = 0; i < 3; i++) memcpy(padded[i], changed[i], bytes);
  adam_four(s, padded[3], padded[0], padded[1], padded[2]);
  for (int i = 0; i < 3; i++) memcpy(changed[i], padded[i], bytes);
}

/* adamw takes the decay from the weight itself, adam adds it to the gradient. */
static AdamStep adam_step(const Job *job, double rate, double taken) {
  const tfm_trainer *t = job->trainer;
  const tfm_train_settings *s = &t->settings;
  const bool is_apart = t->training->optimizer == TFM_OPTIMIZER_ADAMW;
  const double steps = (double)(t->t - t->head.origin.optimizer);
  return (AdamStep){.clip = (float)job->clip,
                    .decay = is_apart ? 0 : (float)taken,
                    .shrink = is_apart ? (float)(1 - rate * taken) : 1,
                    .rest1 = (float)(1 - s->beta1),
                    .beta2 = (float)s->beta2,
                    .rest2 = (float)(1 - s->beta2),
                    .rate = (float)(rate / (1 - double_pow(s->beta1, steps))),
                    .correction = (float)(1 / sqrt(1 - double_pow(s->beta2, steps))),
                    .eps = (float)s->eps};
}

void tfm_optimize_adam(const Job *job, const Chunk *chunk) {
  const tfm_trainer *t = job->trainer;
  const AdamStep step = adam_step(job, rate_of(job, chunk), decay_of(t, chunk));
  const float *restrict gradient = t->blocks[TFM_TENSOR_GRADIENT] + chunk->at;
  float *restrict weight = t->blocks[TFM_TENSOR_WEIGHT] + chunk->at;
  float *restrict first = t->blocks[TFM_TENSOR_FIRST] + chunk->at;
  float *restrict second = t->blocks[TFM_TENSOR_SECOND] + chunk->at;
  int64_t i = 0;
  for (; i + 4 <= chunk->n; i += 4) {
    if (i % LANES == 0) {
      __builtin_prefetch(gradient + i + OPTIMIZER_AHEAD);
      __builtin_prefetch(weight + i + OPTIMIZER_AHEAD, 1);
      __builtin_prefetch(first + i + OPTIMIZER_AHEAD, 1);
      __builtin_prefetch(second + i + OPTIMIZER_AHEAD, 1);
    }
    adam_four(&step, gradient + i, weight + i, first + i, second + i);
  }
  if (i < chunk->n) adam_rest(&step, gradient + i, (float *[]){weight + i, first + i, second + i}, chunk->n - i);
}

// ---- the running mean ----

static void move_mean(const Job *job, const Chunk *chunk) {
  const float rate = (float)job->rate;
  const float *restrict weight = job->trainer->blocks[TFM_TENSOR_WEIGHT] + chunk->at;
  float *restrict mean = job->trainer->blocks[TFM_TENSOR_MEAN] + chunk->at;
  for (int64_t i = 0; i < chunk->n; i++) mean[i] = mean[i] + rate * (weight[i] - mean[i]);
}

/* It begins with the weights before the first step; a young one moves faster. */
void tfm_average_weights(tfm_trainer *t, int is_before) {
  const double steps = (double)(t->t - t->head.origin.optimizer);
  const double share = lesser_of(t->training->average_share, (steps + 1) / (steps + 10));
  if (!is_before)
    share_job(t, (Job){.trainer = t, .rate = 1 - share, .work = move_mean});
  else if (steps == 1)
    memcpy(t->blocks[TFM_TENSOR_MEAN], t->blocks[TFM_TENSOR_WEIGHT], t->training->floats * sizeof(float));
}

void optimizer_update(tfm_trainer *t, double clip, double rate) {
  share_job(t, (Job){.trainer = t, .clip = clip, .rate = rate, .work = t->training->optimize});
}

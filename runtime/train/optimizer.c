/* What a step does to the weights once their gradients are known: the norm, the schedule, the optimizer.
 *
 * In: settings, gradients, the number of the step. Out: weights and moments, changed in place. The formulas are those
 * of torch.optim. Every operation is rounded alone, in f32; rates and corrections are computed in double. Work is cut
 * into chunks, whatever the number of threads: the sums of a chunk's squares are added in the order of chunks. Refuses
 * nothing. */
#include <math.h>

#include "training.h"

static const double PI = 3.14159265358979323846;

enum { CHUNK = 4096, LANES = 16 };

double optimizer_rate(const tfm_train_settings *s, int64_t t, int64_t epoch) {
  const double lr = s->lr, step = (double)t, warmup = s->warmup;
  if (s->schedule == TFM_SCHEDULE_NOAM) return lr / sqrt(s->model_size) * fmin(1 / sqrt(step), step / pow(warmup, 1.5));
  if (s->schedule == TFM_SCHEDULE_INVERSE_SQRT) return lr * fmin(step / warmup, sqrt(warmup / step));
  if (step <= warmup) return lr * step / warmup;
  if (s->schedule == TFM_SCHEDULE_EXPONENTIAL) return lr * pow(s->gamma, (double)epoch);
  if (s->schedule == TFM_SCHEDULE_CONSTANT) return lr;
  const double part = fmin(1, (step - warmup) / (s->steps - warmup));
  const double share = s->schedule == TFM_SCHEDULE_LINEAR ? 1 - part : (1 + cos(PI * part)) / 2;
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

typedef struct Chunk { /* elements [at, at + n) of the blocks, of one parameter */
  const tfm_parameter *parameter;
  int64_t number, n;
  uint64_t at;
} Chunk;

typedef struct Job {
  tfm_trainer *trainer;
  double clip, rate;
  void (*work)(const struct Job *job, const Chunk *chunk);
} Job;

/* Each thread takes an equal part of the chunks. */
static void walk(void *argument, PoolMember *member) {
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
      const Chunk chunk = {p, number + k, least_of(p->elements - k * CHUNK, CHUNK), p->offset + (uint64_t)(k * CHUNK)};
      job->work(job, &chunk);
    }
    number += chunks;
  }
  fp_mode_leave(fp_mode);
}

static void run(tfm_trainer *t, Job job) {
  enum { WORTH_SHARING = 16 };
  train_share(t->n_chunks < WORTH_SHARING ? NULL : t->pool, walk, &job);
}

// ---- the norm ----

static void add_squares(const Job *job, const Chunk *chunk) {
  const float *values = job->trainer->blocks[TFM_TENSOR_GRADIENT] + chunk->at;
  float lanes[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= chunk->n; i += LANES)
    for (int lane = 0; lane < LANES; lane++) lanes[lane] += values[i + lane] * values[i + lane];
  for (; i < chunk->n; i++) lanes[i % LANES] += values[i] * values[i];
  double sum = 0;
  for (int lane = 0; lane < LANES; lane++) sum += (double)lanes[lane];
  job->trainer->chunk_sums[chunk->number] = sum;
}

double optimizer_norm(tfm_trainer *t) {
  run(t, (Job){.trainer = t, .work = add_squares});
  double squares = 0;
  for (int64_t i = 0; i < t->n_chunks; i++) squares += t->chunk_sums[i];
  return sqrt(squares);
}

// ---- the optimizers ----

static double decay_of(const tfm_trainer *t, const Chunk *chunk) {
  return chunk->parameter->decays ? t->settings.weight_decay : 0;
}

static void sgd(const Job *job, const Chunk *chunk) {
  const tfm_trainer *t = job->trainer;
  const float clip = (float)job->clip, decay = (float)decay_of(t, chunk), rate = (float)job->rate;
  const float mu = (float)t->settings.momentum;
  const bool is_first = t->t == 1, nesterov = t->settings.nesterov;
  const float *restrict gradient = t->blocks[TFM_TENSOR_GRADIENT] + chunk->at;
  float *restrict weight = t->blocks[TFM_TENSOR_WEIGHT] + chunk->at;
  float *restrict first = t->blocks[TFM_TENSOR_FIRST];
  for (int64_t i = 0; i < chunk->n; i++) {
    float g = gradient[i] * clip;
    if (decay != 0) g = g + weight[i] * decay;
    if (first) {
      float *at = &first[chunk->at + (uint64_t)i];
      const float m = is_first ? g : *at * mu + g;
      *at = m;
      g = nesterov ? g + mu * m : m;
    }
    weight[i] = weight[i] - rate * g;
  }
}

/* adamw takes the decay from the weight itself, adam adds it to the gradient. */
static void adam(const Job *job, const Chunk *chunk) {
  const tfm_trainer *t = job->trainer;
  const tfm_train_settings *s = &t->settings;
  const bool is_apart = t->training->optimizer == TFM_OPTIMIZER_ADAMW;
  const double taken = decay_of(t, chunk);
  const float clip = (float)job->clip, decay = is_apart ? 0 : (float)taken, eps = (float)s->eps;
  const float shrink = is_apart ? (float)(1 - job->rate * taken) : 1;
  const float rest1 = (float)(1 - s->beta1), beta2 = (float)s->beta2, rest2 = (float)(1 - s->beta2);
  const float rate = (float)(job->rate / (1 - pow(s->beta1, (double)t->t)));
  const float correction = (float)(1 / sqrt(1 - pow(s->beta2, (double)t->t)));
  const float *restrict gradient = t->blocks[TFM_TENSOR_GRADIENT] + chunk->at;
  float *restrict weight = t->blocks[TFM_TENSOR_WEIGHT] + chunk->at;
  float *restrict first = t->blocks[TFM_TENSOR_FIRST] + chunk->at;
  float *restrict second = t->blocks[TFM_TENSOR_SECOND] + chunk->at;
  for (int64_t i = 0; i < chunk->n; i++) {
    float p = weight[i] * shrink, g = gradient[i] * clip;
    if (decay != 0) g = g + p * decay;
    const float m = first[i] + (g - first[i]) * rest1;
    const float v = second[i] * beta2 + rest2 * (g * g);
    first[i] = m;
    second[i] = v;
    weight[i] = p - rate * (m / (sqrtf(v) * correction + eps));
  }
}

void optimizer_update(tfm_trainer *t, double clip, double rate) {
  const bool is_sgd = t->training->optimizer == TFM_OPTIMIZER_SGD;
  run(t, (Job){.trainer = t, .clip = clip, .rate = rate, .work = is_sgd ? sgd : adam});
}

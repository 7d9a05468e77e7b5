/* Schedules, norms and optimizers. See update.h; the formulas are those of torch.optim. */
#include "train/update.h"

#include <math.h>

static const double PI = 3.14159265358979323846;

double update_rate(const TrainSettings *s, int64_t t, int64_t epoch) {
  const double lr = s->lr, step = (double)t, warmup = s->warmup;
  if (s->schedule == SCHEDULE_NOAM) return lr / sqrt(s->model_size) * fmin(1 / sqrt(step), step / pow(warmup, 1.5));
  if (s->schedule == SCHEDULE_INVERSE_SQRT) return lr * fmin(step / warmup, sqrt(warmup / step));
  if (step <= warmup) return lr * step / warmup;
  if (s->schedule == SCHEDULE_EXPONENTIAL) return lr * pow(s->gamma, (double)epoch);
  if (s->schedule == SCHEDULE_CONSTANT) return lr;
  const double part = fmin(1, (step - warmup) / (s->steps - warmup));
  const double share = s->schedule == SCHEDULE_LINEAR ? 1 - part : (1 + cos(PI * part)) / 2;
  return s->final_lr + (lr - s->final_lr) * share;
}

double update_squares(const float *values, int64_t n) {
  enum { CHUNK = 4096, LANES = 16 };
  double sum = 0;
  for (int64_t from = 0; from < n; from += CHUNK) {
    float lanes[LANES] = {0};
    const int64_t to = from + CHUNK < n ? from + CHUNK : n;
    for (int64_t i = from; i < to; i++) lanes[(i - from) % LANES] += values[i] * values[i];
    for (int lane = 0; lane < LANES; lane++) sum += (double)lanes[lane];
  }
  return sum;
}

static void sgd(const TrainSettings *s, const Update *u) {
  const float clip = (float)u->clip, decay = (float)u->decay, rate = (float)u->rate, mu = (float)s->momentum;
  for (int64_t i = 0; i < u->n; i++) {
    float g = u->gradient[i] * clip;
    if (decay != 0) g = g + u->weight[i] * decay;
    if (u->first) {
      const float m = u->t == 1 ? g : u->first[i] * mu + g;
      u->first[i] = m;
      g = s->nesterov ? g + mu * m : m;
    }
    u->weight[i] = u->weight[i] - rate * g;
  }
}

/* adamw takes the decay from the weight itself, adam adds it to the gradient. */
static void adam(const TrainSettings *s, const Update *u) {
  const bool is_apart = s->optimizer == OPTIMIZER_ADAMW;
  const float clip = (float)u->clip, decay = is_apart ? 0 : (float)u->decay, eps = (float)s->eps;
  const float shrink = is_apart ? (float)(1 - u->rate * u->decay) : 1;
  const float rest1 = (float)(1 - s->beta1), beta2 = (float)s->beta2, rest2 = (float)(1 - s->beta2);
  const float rate = (float)(u->rate / (1 - pow(s->beta1, (double)u->t)));
  const float correction = (float)(1 / sqrt(1 - pow(s->beta2, (double)u->t)));
  for (int64_t i = 0; i < u->n; i++) {
    float p = u->weight[i] * shrink, g = u->gradient[i] * clip;
    if (decay != 0) g = g + p * decay;
    const float m = u->first[i] + (g - u->first[i]) * rest1;
    const float v = u->second[i] * beta2 + rest2 * (g * g);
    u->first[i] = m;
    u->second[i] = v;
    u->weight[i] = p - rate * (m / (sqrtf(v) * correction + eps));
  }
}

void update_weight(const TrainSettings *settings, const Update *update) {
  if (settings->optimizer == OPTIMIZER_SGD)
    sgd(settings, update);
  else
    adam(settings, update);
}

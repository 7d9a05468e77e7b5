/* Random numbers of training: functions of a seed and of a place, without a state.
 *
 * In: a seed, what the numbers are for, where. Out: initial values of weights and masks of dropout. The same numbers on
 * every machine, whatever the order in which they are asked for and however threads share them; docs/training.md has
 * the formulas. Refuses nothing. */
#include <math.h>
#include <string.h>

#include "training.h"

static const double PI = 3.14159265358979323846;

void tfm_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]) {
  enum { ROUNDS = 10 };
  uint32_t c[4], k[2] = {key[0], key[1]};
  memcpy(c, counter, sizeof c);
  for (int round = 0; round < ROUNDS; round++) {
    const uint64_t p = (uint64_t)c[0] * 0xD2511F53u, q = (uint64_t)c[2] * 0xCD9E8D57u;
    const uint32_t next[4] = {(uint32_t)(q >> 32) ^ c[1] ^ k[0], (uint32_t)q, (uint32_t)(p >> 32) ^ c[3] ^ k[1],
                              (uint32_t)p};
    memcpy(c, next, sizeof c);
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  memcpy(words, c, sizeof c);
}

void train_share(Pool *pool, PoolWork work, void *argument) {
  const int32_t threads = pool ? pool_threads(pool) : 1;
  if (threads > 1 && pool_claim(pool)) {
    pool_run(pool, threads, work, argument);
    pool_release(pool);
  } else {
    PoolMember alone = {.active = 1};
    work(argument, &alone);
  }
}

// ---- initial values ----

static uint64_t hash_of(const char *path) { /* FNV-1a */
  uint64_t h = 14695981039346656037u;
  for (; *path; path++) h = (h ^ (unsigned char)*path) * 1099511628211u;
  return h;
}

/* What the kind makes of a random number. */
typedef struct Values {
  bool is_normal;
  double a, b; /* mean and deviation; or the least and the greatest */
} Values;

static Values values_of(const tfm_parameter *p) {
  const tfm_initial *initial = &p->initial;
  double rest = 1;
  for (uint32_t i = 2; i < p->rank; i++) rest *= (double)p->dims[i];
  const double into = p->rank > 1 ? (double)p->dims[1] * rest : 1, out = p->rank ? (double)p->dims[0] * rest : 1;
  const double xavier = initial->a * sqrt(2 / (into + out)), kaiming = sqrt(2 / ((1 + initial->a * initial->a) * into));
  switch (initial->kind) {
    case TFM_INITIAL_UNIFORM:
      return (Values){false, initial->a, initial->b};
    case TFM_INITIAL_NORMAL:
      return (Values){true, initial->a, initial->b};
    case TFM_INITIAL_XAVIER_UNIFORM:
      return (Values){false, -sqrt(3) * xavier, sqrt(3) * xavier};
    case TFM_INITIAL_XAVIER_NORMAL:
      return (Values){true, 0, xavier};
    case TFM_INITIAL_KAIMING_UNIFORM:
      return (Values){false, -sqrt(3) * kaiming, sqrt(3) * kaiming};
    case TFM_INITIAL_KAIMING_NORMAL:
      return (Values){true, 0, kaiming};
    default:
      return (Values){false, initial->a, initial->a};
  }
}

void draw_initial(const tfm_parameter *parameter, uint64_t seed, float *values) {
  const Values of = values_of(parameter);
  const uint64_t h = hash_of(parameter->path);
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32) ^ 0xFFFFFFFEu};
  for (uint64_t e = 0; e < (uint64_t)parameter->elements; e++) {
    const uint32_t counter[4] = {(uint32_t)(e / 2), (uint32_t)(e / 2 >> 32), (uint32_t)h, (uint32_t)(h >> 32)};
    uint32_t words[4];
    tfm_philox(counter, key, words);
    const double u = (words[2 * (e % 2)] + 0.5) / 0x1p32, v = (words[2 * (e % 2) + 1] + 0.5) / 0x1p32;
    values[e] = (float)(of.is_normal ? of.a + of.b * sqrt(-2 * log(u)) * cos(2 * PI * v) : of.a + (of.b - of.a) * u);
  }
}

// ---- dropout ----

/* The axes of a mask as the law counts them: one of items * n, n known, is two. */
typedef struct MaskAxes {
  uint32_t rank;
  int32_t items; /* the axis; -1: none */
  int64_t dims[TFM_MAX_RANK + 1];
  uint32_t fold[TFM_MAX_RANK + 1]; /* the size by which coordinates are folded */
} MaskAxes;

typedef struct MaskDrawing {
  MaskAxes axes;
  MaskPlace place;
  uint64_t limit; /* words from here on are kept */
  uint32_t key[2];
  int64_t lines, columns;
  uint8_t *mask;
} MaskDrawing;

static void add_axis(MaskAxes *axes, int64_t dim, uint32_t fold) {
  axes->fold[axes->rank] = fold;
  axes->dims[axes->rank++] = dim;
}

static MaskAxes axes_of(const tfm_dropout *dropout, const int64_t *dims) {
  enum { UNKNOWN = 1 << 20 };
  MaskAxes axes = {.items = -1};
  for (uint32_t i = 0; i < dropout->rank; i++) {
    if (i != dropout->item_axis) {
      add_axis(&axes, dims[i], dropout->fold[i]);
      continue;
    }
    axes.items = (int32_t)axes.rank;
    add_axis(&axes, dims[i] / dropout->per_item, UNKNOWN);
    if (dropout->per_item != 1) add_axis(&axes, dropout->per_item, dropout->per_item);
  }
  if (!axes.rank) add_axis(&axes, 1, 1);
  return axes;
}

/* One line along the last axis, which begins at these coordinates. Four columns share a drawing, unless they are
 * items. */
static void draw_line(const MaskDrawing *d, const int64_t *index, uint8_t *kept) {
  const int32_t last = (int32_t)d->axes.rank - 1, items = d->axes.items;
  uint32_t r = 0, words[4];
  for (int32_t a = 0; a < last; a++)
    if (a != items) r = r * d->axes.fold[a] + (uint32_t)index[a];
  const int64_t item = d->place.first_item + (items >= 0 && items != last ? index[items] : 0);
  for (int64_t i = 0; i < d->columns; i++) {
    const uint32_t column = last != items ? (uint32_t)i : 0;
    const int64_t of = last != items ? item : item + i;
    const uint32_t counter[4] = {column / 4, r, (uint32_t)of, d->place.step};
    if (last == items || i % 4 == 0) tfm_philox(counter, d->key, words);
    kept[i] = words[column % 4] >= d->limit;
  }
}

static void draw_lines(void *argument, PoolMember *member) {
  const MaskDrawing *d = argument;
  const int64_t from = d->lines * member->thread / member->active,
                to = d->lines * (member->thread + 1) / member->active;
  int64_t index[TFM_MAX_RANK + 1] = {0}, rest = from;
  for (int32_t a = (int32_t)d->axes.rank - 2; a >= 0 && d->axes.dims[a]; rest /= d->axes.dims[a--])
    index[a] = rest % d->axes.dims[a];
  for (int64_t line = from; line < to; line++) {
    draw_line(d, index, d->mask + line * d->columns);
    for (int32_t a = (int32_t)d->axes.rank - 2; a >= 0 && ++index[a] == d->axes.dims[a]; a--) index[a] = 0;
  }
}

void draw_mask(Pool *pool, const tfm_dropout *dropout, const int64_t *dims, const MaskPlace *place, uint8_t *mask) {
  enum { WORTH_SHARING = 1 << 14 };
  MaskDrawing d = {.axes = axes_of(dropout, dims),
                   .place = *place,
                   .limit = (uint64_t)(dropout->p * 0x1p32),
                   .key = {(uint32_t)place->seed, (uint32_t)(place->seed >> 32) ^ dropout->number},
                   .lines = 1,
                   .mask = mask};
  d.columns = d.axes.dims[d.axes.rank - 1];
  for (uint32_t a = 0; a + 1 < d.axes.rank; a++) d.lines *= d.axes.dims[a];
  train_share(d.lines * d.columns < WORTH_SHARING ? NULL : pool, draw_lines, &d);
}

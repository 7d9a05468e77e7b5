/* What of training is drawn: random numbers that a seed and a place determine; docs/training.md has them all.
 *
 * In: a seed and a place. Out: initial values of weights and masks of dropout, which have no state. However threads
 * share the work, the numbers are the same. Refuses nothing. */
#include <math.h>
#include <string.h>

#include "base/fnv.h"
#include "base/numbers.h"
#include "machine/fp_mode.h"
#include "machine/tuning.h"
#include "machine/wide.h"
#include "tfm/abi/double_functions.h"
#include "train/trainer_parts.h"

static const double PI = 3.14159265358979323846;

enum { ROUNDS = 10 }; /* of Philox */

void tfm_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]) {
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
    pool_run(pool, pool_threads_now(pool, threads), work, argument);
    pool_release(pool);
  } else {
    PoolMember alone = {.active = 1};
    work(argument, &alone);
  }
}

// ---- initial values ----

static uint64_t hash_of(const char *path) {
  uint64_t h = FNV_BEGIN;
  for (; *path; path++) h = fnv_add(h, (unsigned char)*path);
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

__attribute__((cold)) void draw_initial(const tfm_parameter *parameter, uint64_t seed, float *values) {
  const Values of = values_of(parameter);
  const uint64_t h = hash_of(parameter->path);
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32) ^ 0xFFFFFFFEu};
  const uint64_t fp_mode = fp_mode_enter();
  for (uint64_t e = 0; e < (uint64_t)parameter->elements; e++) {
    const uint32_t counter[4] = {(uint32_t)(e / 2), (uint32_t)(e / 2 >> 32), (uint32_t)h, (uint32_t)(h >> 32)};
    uint32_t words[4];
    tfm_philox(counter, key, words);
    const double u = (words[2 * (e % 2)] + 0.5) / 0x1p32, v = (words[2 * (e % 2) + 1] + 0.5) / 0x1p32;
    values[e] = (float)(of.is_normal ? of.a + of.b * sqrt(-2 * double_log(u)) * double_cos(2 * PI * v)
                                     : of.a + (of.b - of.a) * u);
  }
  fp_mode_leave(fp_mode);
}

// ---- dropout ----

/* The axes of a mask as the law counts them: one of items * n, n known, is two. */
typedef struct MaskAxes {
  uint32_t rank;
  int32_t items; /* the axis; -1: none */
  int64_t dims[TFM_MAX_RANK + 1];
  uint32_t fold[TFM_MAX_RANK + 1]; /* the size by which coordinates are folded */
} MaskAxes;

enum { GROUPS = 256 };

/* Places of groups of four elements along the last axis, which share a drawing; written four at a time. */
typedef struct Groups {
  uint32_t column[GROUPS + 3], row[GROUPS + 3], item[GROUPS + 3];
} Groups;
typedef uint32_t FourPlaces __attribute__((vector_size(16)));

typedef struct MaskDrawing MaskDrawing;
typedef void (*GroupDrawer)(const MaskDrawing *drawing, const Groups *groups, int64_t n, uint32_t *kept);

struct MaskDrawing {
  MaskAxes axes;
  MaskPlace place;
  GroupDrawer draw;
  uint64_t limit; /* words from here on are kept */
  uint64_t keys[ROUNDS][2];
  int64_t lines, columns; /* `lines` lie one behind the other, each along the last axis */
  uint8_t *mask;
};

#define TOGETHER 2
#define ABREAST 2
#include "train/vectors/philox.h"
#if MOST_WIDE >= 8
#define TOGETHER 4
#define ABREAST 2
#include "train/vectors/philox.h"
#define TOGETHER 8
#define ABREAST 4
#include "train/vectors/philox.h"
#endif

/* What the kernels may use, this may use too. */
static GroupDrawer drawer_for(uint32_t features) {
#if MOST_WIDE >= 8
  const int32_t bytes = machine_vector_bytes(features);
  if (bytes >= 64) return draw_groups_8;
  if (bytes >= 32) return draw_groups_4;
#endif
  (void)features;
  return draw_groups_2;
}

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
  /* Along the axis of items nothing is shared. */
  if (!axes.rank || axes.items == (int32_t)axes.rank - 1) add_axis(&axes, 1, 1);
  return axes;
}

/* Where a thread stands: the lines that are left, the next group of the first of them. */
typedef struct MaskCursor {
  int64_t lines, column, index[TFM_MAX_RANK + 1];
  uint32_t row, item;
} MaskCursor;

static void begin_line(const MaskDrawing *d, MaskCursor *at) {
  const int32_t items = d->axes.items;
  at->column = 0;
  at->row = 0;
  for (int32_t a = 0; a + 1 < (int32_t)d->axes.rank; a++)
    if (a != items) at->row = at->row * d->axes.fold[a] + (uint32_t)at->index[a];
  at->item = (uint32_t)(d->place.first_item + (items >= 0 ? at->index[items] : 0));
}

/* The next groups, of several lines if these are short; returns how many. */
static int64_t next_groups(const MaskDrawing *d, MaskCursor *at, Groups *groups) {
  const int64_t of_line = (d->columns + 3) / 4;
  int64_t n = 0;
  while (n < GROUPS && at->lines) {
    const int64_t more = least_of(of_line - at->column, GROUPS - n);
    FourPlaces column = (FourPlaces){0, 1, 2, 3} + (uint32_t)at->column;
    const FourPlaces row = (FourPlaces){0} + at->row, item = (FourPlaces){0} + at->item;
    for (int64_t i = n; i < n + more; i += 4, column += 4) {
      memcpy(&groups->column[i], &column, sizeof column);
      memcpy(&groups->row[i], &row, sizeof row);
      memcpy(&groups->item[i], &item, sizeof item);
    }
    n += more;
    at->column += more;
    if (at->column < of_line) break;
    at->lines--;
    for (int32_t a = (int32_t)d->axes.rank - 2; a >= 0 && ++at->index[a] == d->axes.dims[a]; a--) at->index[a] = 0;
    begin_line(d, at);
  }
  return n;
}

/* The last group of a line may have fewer than four elements. Returns where the next one begins. */
static uint8_t *write_groups(const MaskDrawing *d, const Groups *groups, const uint32_t *drawn, int64_t n,
                             uint8_t *kept) {
  if (d->columns % 4 == 0) {
    memcpy(kept, drawn, (size_t)n * 4);
    return kept + n * 4;
  }
  for (int64_t i = 0; i < n; i++) {
    const int64_t left = d->columns - 4 * (int64_t)groups->column[i];
    if (left >= 4)
      memcpy(kept, &drawn[i], 4);
    else
      memcpy(kept, &drawn[i], (size_t)left);
    kept += left < 4 ? left : 4;
  }
  return kept;
}

static void draw_lines(void *argument, PoolMember *member) {
  const MaskDrawing *d = argument;
  const int64_t from = d->lines * member->thread / member->active;
  MaskCursor at = {.lines = d->lines * (member->thread + 1) / member->active - from};
  Groups groups = {.column = {0}};
  uint32_t drawn[GROUPS];
  int64_t rest = from;
  for (int32_t a = (int32_t)d->axes.rank - 2; a >= 0; rest /= d->axes.dims[a--]) at.index[a] = rest % d->axes.dims[a];
  begin_line(d, &at);
  uint8_t *kept = d->mask + from * d->columns;
  for (int64_t n; (n = next_groups(d, &at, &groups)) > 0;) {
    d->draw(d, &groups, n, drawn);
    kept = write_groups(d, &groups, drawn, n, kept);
  }
}

void draw_mask(Pool *pool, const tfm_dropout *dropout, const int64_t *dims, const MaskPlace *place, uint8_t *mask) {
  MaskDrawing d = {.axes = axes_of(dropout, dims),
                   .place = *place,
                   .draw = drawer_for(place->features),
                   .limit = (uint64_t)(dropout->p * 0x1p32),
                   .lines = 1,
                   .mask = mask};
  for (uint32_t i = 0; i < ROUNDS; i++) {
    d.keys[i][0] = (uint32_t)place->seed + i * 0x9E3779B9u;
    d.keys[i][1] = ((uint32_t)(place->seed >> 32) ^ dropout->number) + i * 0xBB67AE85u;
  }
  d.columns = d.axes.dims[d.axes.rank - 1];
  for (uint32_t a = 0; a + 1 < d.axes.rank; a++) d.lines *= d.axes.dims[a];
  if (!d.lines || !d.columns) return;
  train_share(d.lines * d.columns < MASK_WORTH_SHARING ? NULL : pool, draw_lines, &d);
}

/* Initial values and dropout masks. See random.h. */
#include "train/random.h"

#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]) {
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

static Values values_of(const Parameter *p, const Initial *initial) {
  double rest = 1;
  for (uint32_t i = 2; i < p->rank; i++) rest *= (double)p->dims[i];
  const double into = p->rank > 1 ? (double)p->dims[1] * rest : 1, out = p->rank ? (double)p->dims[0] * rest : 1;
  const double xavier = initial->a * sqrt(2 / (into + out)), kaiming = sqrt(2 / ((1 + initial->a * initial->a) * into));
  switch (initial->kind) {
    case INITIAL_UNIFORM:
      return (Values){false, initial->a, initial->b};
    case INITIAL_NORMAL:
      return (Values){true, initial->a, initial->b};
    case INITIAL_XAVIER_UNIFORM:
      return (Values){false, -sqrt(3) * xavier, sqrt(3) * xavier};
    case INITIAL_XAVIER_NORMAL:
      return (Values){true, 0, xavier};
    case INITIAL_KAIMING_UNIFORM:
      return (Values){false, -sqrt(3) * kaiming, sqrt(3) * kaiming};
    case INITIAL_KAIMING_NORMAL:
      return (Values){true, 0, kaiming};
    default:
      return (Values){false, initial->a, initial->a};
  }
}

void draw_initial(const Parameter *parameter, const Initial *initial, uint64_t seed, float *values) {
  const Values of = values_of(parameter, initial);
  const uint64_t h = hash_of(parameter->path);
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32) ^ 0xFFFFFFFEu};
  for (uint64_t e = 0; e < (uint64_t)parameter->elements; e++) {
    const uint32_t counter[4] = {(uint32_t)(e / 2), (uint32_t)(e / 2 >> 32), (uint32_t)h, (uint32_t)(h >> 32)};
    uint32_t words[4];
    philox(counter, key, words);
    const double u = (words[2 * (e % 2)] + 0.5) / 0x1p32, v = (words[2 * (e % 2) + 1] + 0.5) / 0x1p32;
    values[e] = (float)(of.is_normal ? of.a + of.b * sqrt(-2 * log(u)) * cos(2 * PI * v) : of.a + (of.b - of.a) * u);
  }
}

// ---- dropout ----

/* The axes of a mask as the law counts them: one of batch * n, n known, is two. */
typedef struct MaskAxes {
  uint32_t rank;
  int64_t dims[2 * MAX_RANK];
  uint32_t fold[2 * MAX_RANK]; /* the size by which coordinates are folded */
  int32_t batch;               /* -1: none */
} MaskAxes;

static void add_axis(MaskAxes *axes, int64_t dim, bool is_known) {
  enum { UNKNOWN = 1 << 20 };
  axes->fold[axes->rank] = is_known ? (uint32_t)dim : UNKNOWN;
  axes->dims[axes->rank++] = dim;
}

static MaskAxes axes_of(const Node *node, SizeTable *sizes, int32_t batch, const int64_t *symbols) {
  MaskAxes axes = {.batch = -1};
  const Size *items = batch >= 0 ? size_symbol(sizes, sizes->symbols[batch]) : NULL;
  for (uint32_t i = 0; i < node->rank; i++) {
    int64_t dim = 0, per_item = 1;
    size_value(node->dims[i], symbols, &dim);
    const Size *each = items && axes.batch < 0 ? size_div(sizes, node->dims[i], items) : NULL;
    if (each && size_is_const(each, &per_item)) {
      axes.batch = (int32_t)axes.rank;
      add_axis(&axes, symbols[batch], false);
      if (per_item != 1) add_axis(&axes, per_item, true);
    } else {
      add_axis(&axes, dim, size_is_const(node->dims[i], NULL));
    }
  }
  return axes;
}

void draw_mask(const DropoutMask *dropout, SizeTable *sizes, int32_t batch, const int64_t *symbols,
               const MaskPlace *place, Tensor *mask) {
  const MaskAxes axes = axes_of(dropout->input, sizes, batch, symbols);
  const uint64_t limit = (uint64_t)(dropout->p * 0x1p32);
  const uint32_t key[2] = {(uint32_t)place->seed, (uint32_t)(place->seed >> 32) ^ dropout->number};
  const int32_t last = (int32_t)axes.rank - 1;
  int64_t index[2 * MAX_RANK] = {0};
  uint32_t words[4], drawn[4] = {0};
  uint8_t *kept = mask->data;
  for (int64_t i = 0, n = tensor_elements(mask); i < n; i++) {
    uint32_t r = 0;
    for (int32_t a = 0; a < last; a++)
      if (a != axes.batch) r = r * axes.fold[a] + (uint32_t)index[a];
    const uint32_t column = last >= 0 && last != axes.batch ? (uint32_t)index[last] : 0;
    const int64_t item = place->first_item + (axes.batch >= 0 ? index[axes.batch] : 0);
    const uint32_t counter[4] = {column / 4, r, (uint32_t)item, place->step};
    if (!i || memcmp(counter, drawn, sizeof drawn) != 0) philox(counter, key, words); /* four columns share one */
    memcpy(drawn, counter, sizeof drawn);
    kept[i] = words[column % 4] >= limit;
    for (int32_t a = last; a >= 0 && ++index[a] == axes.dims[a]; a--) index[a] = 0;
  }
}

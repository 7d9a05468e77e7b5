/* The gradient of attention: what queries, keys and values get, without any matrix of the scores' shape in memory; and
 * attention with dropout, which is the first part of it, so that both find the same probabilities.
 *
 * A unit is one batch item (a head of a sequence); units divide results, never sums. Keys and values are packed once,
 * as columns and as rows. Then blocks of queries pass: their probabilities are computed again as attention computes
 * them, in blocks of TFM_KEY_BLOCK keys counted from key 0, with the maximum of the whole row in the end, and kept as
 * strips; beside them what they get. Sums along the keys are one of f32 for each block, and these are added in double.
 * Results for a query are one chain over the keys, those for a key one chain over the queries that goes on in memory
 * from block to block. So how queries are cut into blocks changes nothing.
 *
 * Keys after the last query of a block in causal attention have probability 0 and are left out of all of its sums. */
#include "steps/step_attention_grad.h"

#include "steps/epilogue.h"
#include "steps/live_runs.h"

#include <math.h>
#include <string.h>

enum {
  BLOCK_STRIPS = 8,  /* of queries: their strips of 512 keys stay in the second-level cache */
  MOST_FETCHED = 1 << 15, /* floats of an item that are fetched while the one before it is computed */
  NEAR_SCORES = 4096 /* of the rows that row kernels take together: all of them stay in the nearest cache */
};

typedef struct Grad {
  const tfm_attention_grad_step *step;
  const struct attention_grad_operands *operands;
  int64_t items, queries, keys, causal_offset;
  int64_t key_blocks, block_rows; /* rows: of queries */
  int64_t strip_floats;           /* of a block of keys of all rows of a block of queries */
  int64_t key_width, score_rows;  /* of the tiles over columns of keys and values */
  int64_t columns, width;         /* of c, which has those of v if is_forward, else of q; of its tiles */
  const uint32_t *qk_tiles, *gv_tiles;
  uint32_t pack_columns;
  Epilogue score;
} Grad;

enum { MOST_LISTS = 8 };

/* Rows of the next item that are asked for while this one is computed, some with every tile: all at once they would
 * wait for each other, and this item's own lines for them. */
typedef struct FetchList {
  const char *rows;
  int64_t stride, bytes, n; /* bytes and number of rows */
} FetchList;

typedef struct Fetch {
  FetchList lists[MOST_LISTS];
  int list, n;      /* the list at hand, and how many there are */
  int64_t row, few; /* the row at hand of it; rows at a time */
} Fetch;

typedef struct GradScratch {                                           /* of one thread */
  float *key_columns, *value_columns, *key_rows, *query_rows, *g_rows; /* packed; is_forward: key_rows are of values */
  float *p, *kept, *back;                  /* strips, [block of keys][row]; kept is p if nothing is taken */
  float *maximum, *sum, *scale, *products; /* a number per row of a strip; of products two */
  double *totals;                          /* likewise: sums over blocks of keys */
  Epilogue take, multiply, through;        /* the step's kernels kept, sum_products and through, over `operands` */
  Fetch fetch;
  Operand operands[TFM_MAX_OPERANDS];      /* those of the step, then TFM_GRAD_OPERANDS that lie in strips */
} GradScratch;

typedef struct GradItem {
  int64_t number;
  const char *q, *k, *v, *g;
  char *c, *dk, *dv;
  int64_t limit; /* one past the last key that is no padding; those behind it get nothing and are not read */
  int64_t begun; /* keys whose chains have begun */
  LiveRows live; /* of its queries; no mask: all */
} GradItem;

// ---- sizes ----

static Grad grad_of(const tfm_context *context, const tfm_step *step) {
  const tfm_attention_grad_step *info = &context->program->attention_grads[step->index];
  Grad a = {.step = info,
            .operands = &operands_of(context, step)->attention_grad,
            .items = 1,
            .queries = value_of(context, info->dims[info->rank - 2]),
            .keys = value_of(context, info->dims[info->rank - 1]),
            .causal_offset = value_of(context, info->causal_offset)};
  for (int axis = 0; axis < info->rank - 2; axis++) a.items *= value_of(context, info->dims[axis]);
  a.key_blocks = ceil_div(a.keys, TFM_KEY_BLOCK);
  a.block_rows = least_of(BLOCK_STRIPS * info->tile_rows, greatest_of(1, a.queries));
  a.strip_floats = a.block_rows * TFM_STRIP_STRIDE;
  const bool few = info->narrow_width && a.keys <= info->narrow_width;
  a.key_width = few ? info->narrow_width : info->key_width;
  a.score_rows = few ? info->narrow_rows : info->tile_rows;
  a.qk_tiles = info->qk_tiles + (few ? TFM_NARROW_TILES : 0);
  a.gv_tiles = info->gv_tiles + (few ? TFM_NARROW_TILES : 0);
  a.pack_columns = few ? info->pack_narrow : info->pack_columns;
  a.columns = info->is_forward ? info->e : info->h;
  a.width = info->is_forward ? info->e_width : info->h_width;
  a.score = epilogue_of(context, info->score, info->rank, info->n_operands, info->first_operand, info->dims);
  return a;
}

static int64_t panels_floats(int64_t columns, int64_t width, int64_t k) { return round_up(columns, width) * k; }

/* The parts of a thread's scratch, one behind the other from `base`; returns their bytes. */
static int64_t lay_out(const Grad *a, char *base, GradScratch *scratch) {
  const tfm_attention_grad_step *step = a->step;
  const int64_t strips = a->key_blocks * a->strip_floats;
  const bool goes_back = !step->is_forward;
  const int64_t key_floats = panels_floats(step->h, step->h_width, a->keys);
  const int64_t floats[] = {panels_floats(a->keys, a->key_width, step->h),
                            goes_back ? panels_floats(a->keys, a->key_width, step->e) : 0,
                            goes_back ? key_floats : panels_floats(step->e, step->e_width, a->keys),
                            goes_back ? panels_floats(step->h, step->h_width, a->block_rows) : 0,
                            goes_back ? panels_floats(step->e, step->e_width, a->block_rows) : 0,
                            strips,
                            goes_back && step->kept != TFM_NONE ? strips : 0,
                            goes_back ? strips : 0,
                            a->block_rows,
                            a->block_rows,
                            a->block_rows,
                            2 * a->block_rows,
                            2 * a->block_rows};
  float *totals, **places[] = {&scratch->key_columns, &scratch->value_columns, &scratch->key_rows,
                      &scratch->query_rows,  &scratch->g_rows,        &scratch->p,
                      &scratch->kept,        &scratch->back,          &scratch->maximum,
                      &scratch->sum,         &scratch->scale,         &scratch->products,
                      &totals};
  int64_t bytes = 0;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    if (base) *places[i] = (float *)(base + bytes);
    bytes += round_up(floats[i] * (int64_t)sizeof(float), ALIGNMENT);
  }
  if (!base) return bytes;
  scratch->totals = (double *)(void *)totals;
  if (step->is_forward || step->kept == TFM_NONE) scratch->kept = scratch->p;
  return bytes;
}

/* Bounds the product first: sizes that would overflow are refused before the layout is computed. */
static int64_t scratch_bytes(const tfm_context *context, const tfm_step *step) {
  const tfm_attention_grad_step *info = &context->program->attention_grads[step->index];
  const int64_t keys = value_of(context, info->dims[info->rank - 1]);
  const int64_t per_key = 64 * (info->h + info->e + 64) + 64 * BLOCK_STRIPS * TFM_MAX_TILE_ROWS;
  int64_t product;
  if (keys < 0 || __builtin_mul_overflow(keys, per_key, &product)) return -1;
  GradScratch scratch;
  const Grad a = grad_of(context, step);
  return lay_out(&a, NULL, &scratch);
}

// ---- items ----

static char *address_at(const tfm_context *context, const Grad *a, const Operand *operand, int64_t item) {
  int64_t offset = 0;
  for (int axis = a->step->rank - 3; axis >= 0; axis--) {
    const int64_t dim = value_of(context, a->step->dims[axis]);
    offset += item % dim * operand->strides[axis];
    item /= dim;
  }
  return element_address(context, operand, offset);
}

static int64_t stride_of(const Grad *a, const Operand *operand) { return operand->strides[a->step->rank - 2]; }
static int64_t floats_of(const Grad *a, const Operand *operand) {
  return stride_of(a, operand) / (int64_t)sizeof(float);
}

/* Rows of keys as columns of panels. */
static void pack_columns(const Walker *walker, const Grad *a, const char *rows, int64_t stride, int64_t n,
                         int64_t columns, float *packed) {
  tfm_pack_kernel pack = KERNEL_OF(tfm_pack_kernel, walker->context, a->pack_columns);
  for (int64_t key = 0; key < n; key += a->key_width)
    pack((const float *)rows + key * stride, 1, stride, columns, least_of(a->key_width, n - key),
         packed + key * columns);
}

/* n rows as rows of panels. */
static void pack_rows(const Walker *walker, uint32_t kernel, const char *rows, int64_t stride, int64_t n,
                      int64_t columns, int64_t width, float *packed) {
  tfm_pack_kernel pack = KERNEL_OF(tfm_pack_kernel, walker->context, kernel);
  for (int64_t column = 0; column < columns; column += width)
    pack((const float *)rows + column, stride, 1, n, least_of(width, columns - column), packed + column * n);
}

static void clear_rows(char *rows, int64_t stride, int64_t n, int64_t columns) {
  for (int64_t i = 0; i < n; i++) memset(rows + i * stride, 0, (size_t)columns * sizeof(float));
}

static void fetch_some(Fetch *fetch) {
  for (int64_t i = 0; i < fetch->few && fetch->list < fetch->n; i++) {
    const FetchList *list = &fetch->lists[fetch->list];
    const char *row = list->rows + fetch->row * list->stride;
    for (int64_t byte = 0; byte < list->bytes; byte += ALIGNMENT) __builtin_prefetch(row + byte, 0, 2);
    if (++fetch->row < list->n) continue;
    fetch->row = 0;
    fetch->list++;
  }
}

static int64_t last_key(const tfm_context *context, const Grad *a, int64_t item) {
  if (!a->step->padding) return a->keys;
  const Operand *operand = &context->run.operands[a->step->first_operand + a->step->padding];
  return last_live_key(address_at(context, a, operand, item), operand->strides[a->step->rank - 1], a->keys,
                       a->step->padding_true);
}

static LiveRows live_queries_of(const tfm_context *context, const Grad *a, int64_t item) {
  if (!a->step->live) return (LiveRows){0};
  return live_rows_at(context, a->step->live, address_at(context, a, &a->operands->mask, item),
                      stride_of(a, &a->operands->mask));
}

static GradItem enter_item(const Walker *walker, const Grad *a, const GradScratch *scratch, int64_t number) {
  const tfm_context *context = walker->context;
  const tfm_attention_grad_step *step = a->step;
  const struct attention_grad_operands *of = a->operands;
  const GradItem item = {.number = number,
                         .q = address_at(context, a, &of->q, number),
                         .k = address_at(context, a, &of->k, number),
                         .v = address_at(context, a, &of->v, number),
                         .g = address_at(context, a, &of->g, number),
                         .c = address_at(context, a, &of->c, number),
                         .dk = address_at(context, a, &of->dk, number),
                         .dv = address_at(context, a, &of->dv, number),
                         .limit = last_key(context, a, number),
                         .live = live_queries_of(context, a, number)};
  pack_columns(walker, a, item.k, floats_of(a, &of->k), item.limit, step->h, scratch->key_columns);
  if (step->is_forward) {
    pack_rows(walker, step->pack_e, item.v, floats_of(a, &of->v), item.limit, step->e, step->e_width,
              scratch->key_rows);
    return item;
  }
  pack_columns(walker, a, item.v, floats_of(a, &of->v), item.limit, step->e, scratch->value_columns);
  pack_rows(walker, step->pack_h, item.k, floats_of(a, &of->k), item.limit, step->h, step->h_width, scratch->key_rows);
  return item;
}

// ---- one strip of queries ----

/* Of one tile or, if there are few keys, of several: a call for more rows costs less by the row. */
typedef struct Strip {
  int64_t row, rows; /* of the item */
  int64_t at;        /* its first row in the strips of a block */
  int64_t seen;      /* keys */
} Strip;

static float *strip_at(const Grad *a, float *strips, const Strip *strip, int64_t block) {
  return strips + block * a->strip_floats + strip->at * TFM_STRIP_STRIDE;
}

static int64_t keys_of_block(int64_t seen, int64_t block) {
  return least_of(TFM_KEY_BLOCK, seen - block * TFM_KEY_BLOCK);
}

/* A row kernel over rows of strips; the last operand is a number per row if `number` is given. */
static void run_rows(const Walker *walker, uint32_t kernel, int64_t rows, int64_t columns, float *const *strips, int n,
                     float *number) {
  const int64_t row_bytes = TFM_STRIP_STRIDE * (int64_t)sizeof(float);
  tfm_row_args args;
  memset(args.coordinates, 0, sizeof args.coordinates);
  args.rows = rows;
  args.columns = columns;
  args.faults = (int32_t *)&walker->context->run.faults;
  for (int i = 0; i < n; i++) args.operands[i] = (tfm_row_operand){(char *)strips[i], row_bytes, sizeof(float)};
  if (number) args.operands[n] = (tfm_row_operand){(char *)number, sizeof(float), 0};
  KERNEL_OF(tfm_row_kernel, walker->context, kernel)(&args);
}

static void scale_strip(const Walker *walker, const Grad *a, float *strip, int64_t rows, int64_t n, float *factor) {
  bool all_one = true;
  for (int64_t i = 0; i < rows; i++) all_one &= factor[i] == 1;
  if (!all_one) run_rows(walker, a->step->scale_rows, rows, n, (float *const[]){strip, strip}, 2, factor);
}

/* Where a strip lies, or a number per row: element (row, key) of the item, counted as the operands of masks are. */
static Operand strip_operand(const Grad *a, const float *numbers, int64_t row_bytes, int64_t column_bytes,
                             const Strip *strip, int64_t block) {
  const int64_t before = strip->row * row_bytes + block * TFM_KEY_BLOCK * column_bytes;
  Operand operand = {.address = (uintptr_t)numbers - (uintptr_t)before, .slot = -1, .bytes = sizeof(float)};
  operand.strides[a->step->rank - 2] = row_bytes;
  operand.strides[a->step->rank - 1] = column_bytes;
  return operand;
}

/* One of the kernels over p, x and the numbers of their rows, on a block of keys of the strip. */
static void run_term(const Walker *walker, const Grad *a, GradScratch *scratch, const Epilogue *term,
                     const GradItem *item, const Strip *strip, int64_t block, float *result, int64_t result_stride) {
  const int64_t row_bytes = TFM_STRIP_STRIDE * (int64_t)sizeof(float), number = sizeof(float);
  Operand *own = scratch->operands + a->step->n_operands;
  own[TFM_GRAD_P] = strip_operand(a, strip_at(a, scratch->p, strip, block), row_bytes, number, strip, block);
  own[TFM_GRAD_X] = strip_operand(a, strip_at(a, scratch->back, strip, block), row_bytes, number, strip, block);
  own[TFM_GRAD_SCALE] = strip_operand(a, scratch->scale, number, 0, strip, block);
  own[TFM_GRAD_SUM] = strip_operand(a, scratch->products, number, 0, strip, block);
  const Region at = {item->number * a->queries + strip->row, strip->rows, block * TFM_KEY_BLOCK,
                     keys_of_block(strip->seen, block)};
  epilogue_run(walker, term, (char *)result, result_stride * (int64_t)sizeof(float), &at);
}

/* The kernel takes so many rows as a tile may have at most. The sums of blocks are added in double. */
static void soften(const Walker *walker, const Grad *a, const GradScratch *scratch, float *p, int64_t rows, int64_t n) {
  tfm_softmax_kernel softmax = KERNEL_OF(tfm_softmax_kernel, walker->context, a->step->softmax);
  memset(scratch->sum, 0, (size_t)rows * sizeof *scratch->sum);
  for (int64_t at = 0; at < rows; at += TFM_MAX_TILE_ROWS)
    softmax(p + at * TFM_STRIP_STRIDE, least_of(TFM_MAX_TILE_ROWS, rows - at), n, scratch->maximum + at,
            scratch->sum + at, scratch->scale + at);
  for (int64_t i = 0; i < rows; i++)
    scratch->totals[i] = scratch->totals[i] * (double)scratch->scale[i] + (double)scratch->sum[i];
}

/* Scores become probabilities: what attention has after its last block, divided by the sum, if nothing is taken; else
 * the kernels divide, since all of them read more than this. A row whose keys are all masked has the sum 0, and
 * probabilities 0. */
static void find_probabilities(const Walker *walker, const Grad *a, const GradScratch *scratch, const GradItem *item,
                               const Strip *strip) {
  for (int64_t i = 0; i < strip->rows; i++) {
    scratch->maximum[i] = -INFINITY;
    scratch->totals[i] = 0;
  }
  const int64_t blocks = ceil_div(strip->seen, TFM_KEY_BLOCK);
  for (int64_t block = 0; block < blocks; block++) {
    float *p = strip_at(a, scratch->p, strip, block);
    const int64_t n = keys_of_block(strip->seen, block);
    epilogue_run(walker, &a->score, (char *)p, TFM_STRIP_STRIDE * (int64_t)sizeof(float),
                 &(Region){item->number * a->queries + strip->row, strip->rows, block * TFM_KEY_BLOCK, n});
    soften(walker, a, scratch, p, strip->rows, n);
    for (int64_t before = 0; before < block; before++)
      scale_strip(walker, a, strip_at(a, scratch->p, strip, before), strip->rows, TFM_KEY_BLOCK, scratch->scale);
  }
  for (int64_t i = 0; i < strip->rows; i++) {
    const float sum = (float)scratch->totals[i];
    scratch->scale[i] = sum == 0 ? 0 : 1 / sum;
  }
  for (int64_t block = 0; block < blocks && a->step->kept == TFM_NONE; block++)
    scale_strip(walker, a, strip_at(a, scratch->p, strip, block), strip->rows, keys_of_block(strip->seen, block),
                scratch->scale);
}

/* What is kept of p; in `products` the sums of p times what p gets. */
static void find_gradient(const Walker *walker, const Grad *a, GradScratch *scratch, const GradItem *item,
                          const Strip *strip) {
  float *block_sums = scratch->products + a->block_rows;
  memset(scratch->totals, 0, (size_t)strip->rows * sizeof *scratch->totals);
  for (int64_t block = 0; block * TFM_KEY_BLOCK < strip->seen; block++) {
    float *kept = strip_at(a, scratch->kept, strip, block);
    run_term(walker, a, scratch, &scratch->take, item, strip, block, kept, TFM_STRIP_STRIDE);
    run_term(walker, a, scratch, &scratch->multiply, item, strip, block, block_sums, 1);
    for (int64_t i = 0; i < strip->rows; i++) scratch->totals[i] += (double)block_sums[i];
  }
  for (int64_t i = 0; i < strip->rows; i++) scratch->products[i] = (float)scratch->totals[i];
}

/* c (+)= strips of a block of keys times packed rows, tile by tile. */
static void multiply_keys(const Walker *walker, const Grad *a, GradScratch *scratch, const GradItem *item,
                          float *strips, const Strip *strip, int64_t block) {
  const int64_t stride = floats_of(a, &a->operands->c), width = a->width;
  for (int64_t at = 0, rows; at < strip->rows; at += rows) {
    rows = least_of(a->step->tile_rows, strip->rows - at);
    tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, walker->context, a->step->q_tiles[rows]);
    const float *of = strip_at(a, strips, strip, block) + at * TFM_STRIP_STRIDE;
    float *c = (float *)item->c + (strip->row + at) * stride;
    for (int64_t column = 0; column < a->columns; column += width) {
      const float *panel = scratch->key_rows + column * item->limit + block * TFM_KEY_BLOCK * width;
      kernel(of, panel, c + column, stride, keys_of_block(strip->seen, block), block > 0,
             least_of(width, a->columns - column), panel, 0);
    }
    fetch_some(&scratch->fetch);
  }
}

/* A term in place on strips, and from them c: a chain over the keys. The strips are what is kept of p, or what q kT
 * gets. */
static void give_queries(const Walker *walker, const Grad *a, GradScratch *scratch, const GradItem *item,
                         const Epilogue *term, float *strips, const Strip *strip) {
  for (int64_t block = 0; block * TFM_KEY_BLOCK < strip->seen; block++) {
    run_term(walker, a, scratch, term, item, strip, block, strip_at(a, strips, strip, block), TFM_STRIP_STRIDE);
    multiply_keys(walker, a, scratch, item, strips, strip, block);
  }
}

// ---- blocks of queries ----

typedef struct Rows { /* of a block of queries, of q or g */
  const char *from;
  int64_t stride, n, columns;
} Rows;

/* Rows times packed columns: scores, or g vT. A panel serves all strips while it is near. */
static void multiply_columns(const Walker *walker, const Grad *a, const uint32_t *tiles, const Rows *rows, int64_t seen,
                             const float *packed, float *strips, Fetch *fetch) {
  const int64_t width = a->key_width, tile_rows = a->score_rows;
  for (int64_t key = 0; key < seen; key += width) {
    const float *panel = packed + key * rows->columns;
    float *to = strips + key / TFM_KEY_BLOCK * a->strip_floats + key % TFM_KEY_BLOCK;
    for (int64_t at = 0; at < rows->n; at += tile_rows) {
      tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, walker->context, tiles[least_of(tile_rows, rows->n - at)]);
      kernel((const float *)(rows->from + at * rows->stride), panel, to + at * TFM_STRIP_STRIDE, TFM_STRIP_STRIDE,
             rows->columns, 0, least_of(width, seen - key), panel, 0);
      fetch_some(fetch);
    }
  }
}

typedef struct Given { /* what keys or values get */
  char *to;
  int64_t stride, columns, width;
  const uint32_t *tiles;
} Given;

/* to[keys] (+)= strips transposed times rows: chains over the queries, which go on from block to block. Keys from
 * `begun` on begin theirs. */
static void give_keys(const Walker *walker, const Grad *a, const Given *given, const float *strips, int64_t rows,
                      int64_t begun, int64_t seen, const float *packed, Fetch *fetch) {
  const int64_t stride = given->stride / (int64_t)sizeof(float);
  for (int64_t key = 0, n; key < seen; key += n) {
    const int64_t within = key % TFM_KEY_BLOCK;
    n = least_of(least_of(a->step->tile_rows, (key < begun ? begun : seen) - key), TFM_KEY_BLOCK - within);
    tfm_tile_kernel kernel = KERNEL_OF(tfm_tile_kernel, walker->context, given->tiles[n]);
    const float *strip = strips + key / TFM_KEY_BLOCK * a->strip_floats + within;
    float *c = (float *)(given->to + key * given->stride);
    for (int64_t column = 0; column < given->columns; column += given->width) {
      const float *panel = packed + column * rows;
      kernel(strip, panel, c + column, stride, rows, key < begun, least_of(given->width, given->columns - column),
             (const char *)(column + given->width < given->columns ? c + column + given->width : c + n * stride), 0);
    }
    fetch_some(fetch);
  }
}

/* Keys that some query of the block may see. */
static int64_t keys_seen(const Grad *a, const GradItem *item, int64_t end_row) {
  return a->step->causal ? least_of(item->limit, greatest_of(0, end_row + a->causal_offset)) : item->limit;
}

/* Strips of a block of n queries, which are scores yet: of as many rows at a time as stay near. */
static void run_strips(const Walker *walker, const Grad *a, GradScratch *scratch, const GradItem *item, int64_t first,
                       int64_t n, int64_t seen) {
  const int64_t tile_rows = a->step->tile_rows;
  const int64_t rows = tile_rows * greatest_of(1, NEAR_SCORES / (least_of(seen, TFM_KEY_BLOCK) * tile_rows));
  for (int64_t at = 0; at < n; at += rows) {
    const Strip strip = {first + at, least_of(rows, n - at), at, seen};
    find_probabilities(walker, a, scratch, item, &strip);
    if (a->step->is_forward) {
      give_queries(walker, a, scratch, item, &scratch->take, scratch->p, &strip);
      continue;
    }
    find_gradient(walker, a, scratch, item, &strip);
    give_queries(walker, a, scratch, item, &scratch->through, scratch->back, &strip);
  }
}

static void run_block(const Walker *walker, const Grad *a, GradScratch *scratch, GradItem *item, int64_t first,
                      int64_t n) {
  const tfm_attention_grad_step *step = a->step;
  const struct attention_grad_operands *of = a->operands;
  const int64_t seen = keys_seen(a, item, first + n), begun = item->begun;
  const Rows q = {item->q + first * stride_of(a, &of->q), stride_of(a, &of->q), n, step->h};
  const Rows g = {item->g + first * stride_of(a, &of->g), stride_of(a, &of->g), n, step->e};
  if (seen == 0) {
    clear_rows(item->c + first * stride_of(a, &of->c), stride_of(a, &of->c), n, a->columns);
    return;
  }
  if (!step->is_forward) {
    pack_rows(walker, step->pack_h, q.from, floats_of(a, &of->q), n, step->h, step->h_width, scratch->query_rows);
    pack_rows(walker, step->pack_e, g.from, floats_of(a, &of->g), n, step->e, step->e_width, scratch->g_rows);
    multiply_columns(walker, a, a->gv_tiles, &g, seen, scratch->value_columns, scratch->back, &scratch->fetch);
  }
  multiply_columns(walker, a, a->qk_tiles, &q, seen, scratch->key_columns, scratch->p, &scratch->fetch);
  run_strips(walker, a, scratch, item, first, n, seen);
  if (step->is_forward) return;
  const Given to_k = {item->dk, stride_of(a, &of->dk), step->h, step->h_width, step->k_tiles};
  const Given to_v = {item->dv, stride_of(a, &of->dv), step->e, step->e_width, step->v_tiles};
  give_keys(walker, a, &to_v, scratch->kept, n, begun, seen, scratch->g_rows, &scratch->fetch);
  give_keys(walker, a, &to_k, scratch->back, n, begun, seen, scratch->query_rows, &scratch->fetch);
  item->begun = seen;
}

/* The queries in [row, end) that are live, block by block. */
static void run_queries(const Walker *walker, const Grad *a, GradScratch *scratch, GradItem *item, int64_t row,
                        int64_t end) {
  for (int64_t n; row < end; row += n) {
    n = least_of(a->block_rows, end - row);
    run_block(walker, a, scratch, item, row, n);
  }
}

static void run_live_queries(const Walker *walker, const Grad *a, GradScratch *scratch, GradItem *item) {
  const int64_t stride = stride_of(a, &a->operands->c);
  int64_t first, rows;
  if (!item->live.mask) {
    run_queries(walker, a, scratch, item, 0, a->queries);
    return;
  }
  for (int64_t row = 0; (rows = live_run(&item->live, true, row, a->queries, &first)) > 0; row = first + rows)
    run_queries(walker, a, scratch, item, first, first + rows);
  if (!item->live.zeroed) return;
  for (int64_t row = 0; (rows = live_run(&item->live, false, row, a->queries, &first)) > 0; row = first + rows)
    clear_rows(item->c + first * stride, stride, rows, a->columns);
}

/* Keys that no query sees get nothing. */
static void clear_unseen(const Grad *a, const GradItem *item) {
  const int64_t seen = item->begun;
  const int64_t k = stride_of(a, &a->operands->dk), v = stride_of(a, &a->operands->dv);
  clear_rows(item->dk + seen * k, k, a->keys - seen, a->step->h);
  clear_rows(item->dv + seen * v, v, a->keys - seen, a->step->e);
}

static void add_rows(Fetch *fetch, const char *rows, int64_t stride, int64_t n, int64_t bytes) {
  if (n > 0) fetch->lists[fetch->n++] = (FetchList){rows, stride, bytes, n};
}

/* About how many tiles an item has. */
static int64_t tiles_of_item(const Grad *a) {
  const int64_t rows = a->step->tile_rows, of_queries = ceil_div(a->queries, rows);
  const int64_t of_scores = ceil_div(a->queries, a->score_rows) * ceil_div(a->keys, a->key_width);
  if (a->step->is_forward) return of_scores + of_queries;
  return 2 * of_scores + of_queries + 2 * ceil_div(a->keys, rows);
}

/* What the next item reads, and the lines that it writes, come from far away and have the time of this one for it. */
static void plan_fetch(const tfm_context *context, const Grad *a, int64_t number, Fetch *fetch) {
  const tfm_attention_grad_step *step = a->step;
  const struct attention_grad_operands *of = a->operands;
  const int64_t h = step->h * (int64_t)sizeof(float), e = step->e * (int64_t)sizeof(float);
  fetch->list = fetch->n = 0;
  fetch->row = 0;
  if (number >= a->items || (a->keys + a->queries) * (step->h + step->e) > MOST_FETCHED) return;
  add_rows(fetch, address_at(context, a, &of->k, number), stride_of(a, &of->k), a->keys, h);
  add_rows(fetch, address_at(context, a, &of->v, number), stride_of(a, &of->v), a->keys, e);
  add_rows(fetch, address_at(context, a, &of->q, number), stride_of(a, &of->q), a->queries, h);
  add_rows(fetch, address_at(context, a, &of->c, number), stride_of(a, &of->c), a->queries,
           a->columns * (int64_t)sizeof(float));
  if (!step->is_forward) {
    add_rows(fetch, address_at(context, a, &of->g, number), stride_of(a, &of->g), a->queries, e);
    add_rows(fetch, address_at(context, a, &of->dv, number), stride_of(a, &of->dv), a->keys, e);
    add_rows(fetch, address_at(context, a, &of->dk, number), stride_of(a, &of->dk), a->keys, h);
  }
  int64_t rows = 0;
  for (int i = 0; i < fetch->n; i++) rows += fetch->lists[i].n;
  fetch->few = ceil_div(rows, greatest_of(1, tiles_of_item(a)));
}

/* The kernels that read strips beside the step's operands, of which a thread has copies for that. */
static void set_terms(const tfm_context *context, const Grad *a, GradScratch *scratch) {
  const tfm_attention_grad_step *step = a->step;
  const uint8_t n = (uint8_t)(step->n_operands + TFM_GRAD_OPERANDS);
  const uint32_t kernels[] = {step->kept, step->sum_products, step->through};
  Epilogue *const terms[] = {&scratch->take, &scratch->multiply, &scratch->through};
  memcpy(scratch->operands, &context->run.operands[step->first_operand], step->n_operands * sizeof(Operand));
  for (size_t i = 0; i < sizeof terms / sizeof *terms; i++) {
    *terms[i] = epilogue_of(context, kernels[i], step->rank, n, step->first_operand, step->dims);
    terms[i]->operands = scratch->operands;
  }
}

static void run(Walker *walker, const tfm_step *step) {
  const Grad a = grad_of(walker->context, step);
  if (a.items <= 0) return;
  GradScratch scratch;
  lay_out(&a, walker->scratch, &scratch);
  set_terms(walker->context, &a, &scratch);
  Claimer claimer = walker_claimer(walker, 1, a.items);
  int64_t ignored, number;
  while (share_claim(&claimer, &ignored, &number)) {
    GradItem item = enter_item(walker, &a, &scratch, number);
    plan_fetch(walker->context, &a, number + 1, &scratch.fetch);
    run_live_queries(walker, &a, &scratch, &item);
    if (!a.step->is_forward) clear_unseen(&a, &item);
  }
}

const struct tfm_attention_grad *tfm_attention_grad(void) {
  static const struct tfm_attention_grad functions = {.run = run, .scratch_bytes = scratch_bytes};
  return &functions;
}

/* Steps that the runtime computes itself, line by line along the last axis: running sums, the greatest elements,
 * where the true ones stand, elements picked by ids, rows of packed tables, rows that are added to others, powers,
 * reductions of i32.
 *
 * In: operands resolved to bytes. Out: the result. Threads share lines, and a line is walked from its first element to
 * its last by one of them, so no number depends on how many there are. Ids were checked by the step before. Nothing is
 * refused. */
#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "steps/walker.h"

typedef struct Line { /* addresses of the first elements, and bytes between elements */
  const char *x, *y;
  char *c;
  int64_t x_stride, y_stride, c_stride;
  int64_t n, count; /* elements of x, of c */
  int64_t bytes;    /* of an element of c */
} Line;

static float f32_at(const char *address) {
  float number;
  memcpy(&number, address, sizeof number);
  return number;
}

static int32_t i32_at(const char *address) {
  int32_t number;
  memcpy(&number, address, sizeof number);
  return number;
}

// ---- running sums ----

/* Lines that lie side by side are walked together, so that what lies between their elements is read once. */
enum { BESIDE = 16, MOST_WAITING = 40 };

/* Of the product: what its kernels do to chains of TFM_SHORT_CHAIN steps, and partial_sums.h to the sums of TFM_CHAIN
 * steps. The sums that wait are a binary counter, and chains behind an element hold only zeros. */
typedef struct Waiting {
  float sums[MOST_WAITING][BESIDE];
  int n;
  float before[BESIDE]; /* the short chains before this one, if there are any */
  bool has_before;
} Waiting;

static inline void push_chain(Waiting *waiting, float *sum, int64_t chain, int width) {
  for (; chain & 1; chain >>= 1) {
    waiting->n--;
    for (int j = 0; j < width; j++) sum[j] += waiting->sums[waiting->n][j];
  }
  memcpy(waiting->sums[waiting->n++], sum, (size_t)width * sizeof *sum);
}

/* The short chain that ends before element i becomes one of those before, and a long chain of these waits. */
static inline void end_chain(Waiting *waiting, const float *sum, int64_t i, int width) {
  for (int j = 0; j < width; j++) waiting->before[j] = waiting->has_before ? waiting->before[j] + sum[j] : sum[j];
  waiting->has_before = i % TFM_CHAIN != 0;
  if (!waiting->has_before) push_chain(waiting, waiting->before, i / TFM_CHAIN - 1, width);
}

/* Without chains the first sum is the first element itself, so that -0 stays -0; a product begins with 0. */
static inline void running_sums(const Line *line, bool has_chains, int width) {
  float sum[BESIDE], x[BESIDE];
  Waiting waiting = {.n = 0};
  for (int64_t i = 0; i < line->count; i++) {
    const bool begins = i == 0 || (has_chains && i % TFM_SHORT_CHAIN == 0);
    memcpy(x, line->x + i * line->x_stride, (size_t)width * sizeof *x);
    if (begins && i) end_chain(&waiting, sum, i, width);
    if (begins)
      for (int j = 0; j < width; j++) sum[j] = has_chains ? 0.0f + x[j] : x[j];
    else
      for (int j = 0; j < width; j++) sum[j] += x[j];
    memcpy(x, sum, sizeof x);
    for (int j = 0; waiting.has_before && j < width; j++) x[j] = waiting.before[j] + x[j];
    for (int block = waiting.n; block-- > 0;)
      for (int j = 0; j < width; j++) x[j] += waiting.sums[block][j];
    memcpy(line->c + i * line->c_stride, x, (size_t)width * sizeof *x);
  }
}

/* In a product 0 times an element that is not finite makes NaN of every sum before it, too. Such an element shows in
 * the last sum. */
static void spoil_before(const Line *line, int column) {
  const char *x = line->x + column * (int64_t)sizeof(float);
  char *c = line->c + column * (int64_t)sizeof(float);
  int64_t last = line->count - 1;
  if (isfinite(f32_at(c + last * line->c_stride))) return;
  while (last >= 0 && isfinite(f32_at(x + last * line->x_stride))) last--;
  for (int64_t i = 0; i < last; i++) memcpy(c + i * line->c_stride, &(float){NAN}, sizeof(float));
}

/* One line, or BESIDE of them. */
static void cumsum_f32(const Line *line, bool is_product, int width) {
  if (width == BESIDE) running_sums(line, is_product, BESIDE);
  else running_sums(line, is_product, 1);
  for (int j = 0; is_product && line->count && j < width; j++) spoil_before(line, j);
}

static void cumsum_i32(const Line *line) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < line->count; i++) {
    sum += (uint32_t)i32_at(line->x + i * line->x_stride);
    memcpy(line->c + i * line->c_stride, &sum, sizeof sum);
  }
}

// ---- the greatest elements ----

int64_t along_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  const tfm_along_step *along = &context->program->alongs[step->index];
  int64_t bytes;
  if (along->what != TFM_ALONG_TOPK) return 0;
  bool overflows = __builtin_mul_overflow(value_of(context, along->dims[along->rank - 1]), 8, &bytes);
  return overflows ? -1 : bytes;
}

static bool is_greater(float a, float b) { return isnan(a) ? !isnan(b) : a > b; }

/* Elements come in the order of their indices, so one that is as great as another stands behind it. The greatest so far
 * are kept in order; a new one moves the smaller ones down. */
static void topk(const Line *line, char *scratch) {
  float *values = (float *)scratch;
  int32_t *ids = (int32_t *)(scratch + line->count * (int64_t)sizeof *values);
  int64_t kept = 0;
  for (int64_t i = 0; i < line->n; i++) {
    float number = f32_at(line->x + i * line->x_stride);
    if (kept == line->count && !is_greater(number, values[kept - 1])) continue;
    int64_t low = 0, high = kept; /* the first that the new one is greater than lies in [low, high] */
    while (low < high) {
      int64_t middle = low + (high - low) / 2;
      if (is_greater(number, values[middle])) high = middle;
      else low = middle + 1;
    }
    if (kept < line->count) kept++;
    memmove(values + low + 1, values + low, (size_t)(kept - low - 1) * sizeof *values);
    memmove(ids + low + 1, ids + low, (size_t)(kept - low - 1) * sizeof *ids);
    values[low] = number;
    ids[low] = (int32_t)i;
  }
  for (int64_t i = 0; i < line->count; i++) memcpy(line->c + i * line->c_stride, &ids[i], sizeof *ids);
}

// ---- true elements ----

static bool is_true(const Line *line, int64_t i) { return line->x[i * line->x_stride] != 0; }

/* Of the true elements, then of the others. */
static void places(const Line *line) {
  char *to = line->c;
  for (int wanted = 1; wanted >= 0; wanted--)
    for (int32_t i = 0; i < line->n; i++)
      if (is_true(line, i) == wanted) {
        memcpy(to, &i, sizeof i);
        to += line->c_stride;
      }
}

static void before(const Line *line) {
  int32_t n = 0;
  for (int64_t i = 0; i < line->n; i++) {
    memcpy(line->c + i * line->c_stride, &n, sizeof n);
    n += is_true(line, i);
  }
}

// ---- picked elements, powers, reductions of i32 ----

static void take(const Line *line) {
  for (int64_t i = 0; i < line->count; i++) {
    const char *from = line->x + i32_at(line->y + i * line->y_stride) * line->x_stride;
    memcpy(line->c + i * line->c_stride, from, (size_t)line->bytes);
  }
}

static void power(const Line *line) {
  for (int64_t i = 0; i < line->count; i++) {
    double x = (double)f32_at(line->x + i * line->x_stride), y = (double)f32_at(line->y + i * line->y_stride);
    float result = (float)pow(x, y);
    memcpy(line->c + i * line->c_stride, &result, sizeof result);
  }
}

/* Of nothing: sum 0, max the smallest i32, min the greatest. */
static void reduce(const Line *line, tfm_along what) {
  uint32_t sum = 0;
  int32_t greatest = INT32_MIN, least = INT32_MAX;
  for (int64_t i = 0; i < line->n; i++) {
    int32_t number = i32_at(line->x + i * line->x_stride);
    sum += (uint32_t)number;
    if (number > greatest) greatest = number;
    if (number < least) least = number;
  }
  int32_t result = what == TFM_ALONG_MAX ? greatest : least;
  if (what == TFM_ALONG_SUM) memcpy(&result, &sum, sizeof sum);
  memcpy(line->c, &result, sizeof result);
}

// ---- rows of packed tables ----

/* In a panel numbers of a row of the table stand apart, because for a product it is a column. */
static void unpack_bf16(const char *panel, int64_t width, int64_t lane, int64_t k, float *row) {
  for (int64_t i = 0; i < k; i++) {
    uint16_t half;
    memcpy(&half, panel + ((i / 2 * width + lane) * 2 + (i % 2 == 0)) * (int64_t)sizeof half, sizeof half);
    const uint32_t bits = (uint32_t)half << 16;
    memcpy(row + i, &bits, sizeof bits);
  }
}

/* Numbers of a row lie four by four. They are 128 too large, which f32 holds as exactly as what remains. */
static void unpack_int8(const char *panel, int64_t width, int64_t lane, int64_t k, float scale, float *row) {
  int64_t i = 0;
#if defined(__x86_64__)
  const __m128i zero = _mm_setzero_si128();
  const __m128 more = _mm_set1_ps(128), factor = _mm_set1_ps(scale);
  for (const char *four = panel + lane * 4; i + 4 <= k; i += 4, four += width * 4) {
    int32_t bytes;
    memcpy(&bytes, four, sizeof bytes);
    const __m128i words = _mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), zero);
    const __m128 numbers = _mm_cvtepi32_ps(_mm_unpacklo_epi16(words, zero));
    _mm_storeu_ps(row + i, _mm_mul_ps(_mm_sub_ps(numbers, more), factor));
  }
#endif
  for (; i < k; i++) row[i] = (float)((int)(uint8_t)panel[(i / 4 * width + lane) * 4 + i % 4] - 128) * scale;
}

static void unpack_int4(const char *panel, int64_t width, int64_t lane, int64_t k, float scale, float *row) {
  for (int64_t i = 0; i < k; i++) {
    const int64_t group = i / TFM_GROUP, in_block = group % TFM_GROUPS, at = i % TFM_GROUP;
    const char *block = panel + width * tfm_form_bytes(TFM_FORM_INT4, i - i % (TFM_GROUP * TFM_GROUPS)) + lane * 4;
    const char *numbers = block + width * TFM_GROUPS + in_block * width * TFM_GROUP / 2;
    const int pair = (uint8_t)numbers[at / 8 * 4 * width + at % 4];
    row[i] = (float)(((at % 8 < 4 ? pair : pair >> 4) % 16 - 8) * (int8_t)block[in_block]) * scale;
  }
}

/* Sums and differences of numbers 1/16, 1/8, 1/4 and 1/2 of a period apart, the greatest power of two in k. With SSE
 * two stages of four neighbours at a time, of numbers that are 0, 1, 2 and 3 distances further. */
static int64_t rotate_fours(float *row, int64_t k, int64_t distance) {
#if defined(__x86_64__)
  for (; distance % 4 == 0 && 4 * distance <= (k & -k); distance *= 4)
    for (int64_t begin = 0; begin < k; begin += 4 * distance)
      for (float *at = row + begin; at < row + begin + distance; at += 4) {
        const __m128 a = _mm_loadu_ps(at), b = _mm_loadu_ps(at + distance);
        const __m128 c = _mm_loadu_ps(at + 2 * distance), d = _mm_loadu_ps(at + 3 * distance);
        const __m128 ab = _mm_add_ps(a, b), cd = _mm_add_ps(c, d), a_b = _mm_sub_ps(a, b), c_d = _mm_sub_ps(c, d);
        _mm_storeu_ps(at, _mm_add_ps(ab, cd));
        _mm_storeu_ps(at + distance, _mm_add_ps(a_b, c_d));
        _mm_storeu_ps(at + 2 * distance, _mm_sub_ps(ab, cd));
        _mm_storeu_ps(at + 3 * distance, _mm_sub_ps(a_b, c_d));
      }
#else
  (void)row, (void)k;
#endif
  return distance;
}

static void rotate(float *row, int64_t k) {
  const int64_t period = k & -k;
  for (int64_t distance = rotate_fours(row, k, period / 16 ? period / 16 : 1); distance < period; distance *= 2)
    for (int64_t begin = 0; begin < k; begin += 2 * distance)
      for (int64_t i = begin; i < begin + distance; i++) {
        const float a = row[i], b = row[i + distance];
        row[i] = a + b;
        row[i + distance] = a - b;
      }
}

static void look_up(const Line *line, const tfm_along_step *along) {
  const int64_t k = line->n, width = along->panel, id = i32_at(line->y), lane = id % width;
  const char *panel = line->x + id / width * width * tfm_column_bytes(along->form, k);
  float *row = (float *)(void *)line->c, scale;
  if (along->form == TFM_FORM_BF16) {
    unpack_bf16(panel, width, lane, k, row);
    return;
  }
  memcpy(&scale, panel + width * tfm_form_bytes(along->form, k) + lane * (int64_t)sizeof scale, sizeof scale);
  (along->form == TFM_FORM_INT8 ? unpack_int8 : unpack_int4)(panel, width, lane, k, scale, row);
  rotate(row, k);
}

// ---- rows that are added ----

/* Threads share columns, each of which gets its numbers in the order of the rows. The axis before the last is that of
 * columns, which are neighbours; the last one is that of the rows of c. */
static void scatter(const Walker *walker, const tfm_along_step *along, const Line *line) {
  const int64_t columns = value_of(walker->context, along->dims[0]), blocks = ceil_div(columns, BESIDE);
  const int64_t first = blocks * walker->thread / walker->threads * BESIDE;
  const int64_t n = least_of(columns, blocks * (walker->thread + 1) / walker->threads * BESIDE) - first;
  char *c = line->c + first * (int64_t)sizeof(float);
  const char *x = line->x + first * (int64_t)sizeof(float);
  if (n <= 0) return;
  const bool begins = along->form == 1 || (along->form && !walker->context->run.goes_on);
  for (int64_t row = 0; begins && row < line->count; row++)
    memset(c + row * line->c_stride, 0, (size_t)n * sizeof(float));
  for (int64_t i = 0; i < line->n; i++) {
    float *restrict to = (float *)(void *)(c + i32_at(line->y + i * line->y_stride) * line->c_stride);
    const float *restrict from = (const float *)(const void *)(x + i * line->x_stride);
    for (int64_t j = 0; j < n; j++) to[j] += from[j];
  }
}

// ---- the step ----

static void compute_line(const Line *line, const tfm_along_step *along, char *scratch, int width) {
  switch ((tfm_along)along->what) {
    case TFM_ALONG_CUMSUM:
    case TFM_ALONG_TRIANGLE:
      if (along->x.dtype == TFM_F32) cumsum_f32(line, along->what == TFM_ALONG_TRIANGLE, width);
      else cumsum_i32(line);
      break;
    case TFM_ALONG_TOPK: topk(line, scratch); break;
    case TFM_ALONG_TAKE: take(line); break;
    case TFM_ALONG_POWER: power(line); break;
    case TFM_ALONG_PLACES: places(line); break;
    case TFM_ALONG_BEFORE: before(line); break;
    case TFM_ALONG_LOOK_UP: look_up(line, along); break;
    case TFM_ALONG_SCATTER: break; /* not line by line */
    case TFM_ALONG_SUM:
    case TFM_ALONG_MAX:
    case TFM_ALONG_MIN: reduce(line, (tfm_along)along->what); break;
  }
}

/* Puts the line's first elements where coordinate `number` of the first `axes` axes is. */
static void place_line(const tfm_context *context, const tfm_along_step *along, const struct along_operands *operands,
                       int axes, int64_t number, Line *line) {
  int64_t x = 0, y = 0, c = 0;
  for (int axis = axes - 1; axis >= 0; axis--) {
    int64_t dim = value_of(context, along->dims[axis]), coordinate = number % dim;
    x += coordinate * operands->x.strides[axis];
    y += coordinate * operands->y.strides[axis];
    c += coordinate * operands->c.strides[axis];
    number /= dim;
  }
  line->x = element_address(context, &operands->x, x);
  line->y = element_address(context, &operands->y, y);
  line->c = element_address(context, &operands->c, c);
}

static int64_t product_of_dims(const tfm_context *context, const tfm_along_step *along, int axes) {
  int64_t product = 1;
  for (int axis = 0; axis < axes; axis++) product *= value_of(context, along->dims[axis]);
  return product;
}

/* Whether one id picks a whole row: elements that are neighbours in x and in c. */
static bool takes_rows(const tfm_along_step *along, const struct along_operands *operands) {
  int beside = along->rank - 2;
  return along->what == TFM_ALONG_TAKE && beside >= 0 && operands->y.strides[beside] == 0 &&
         operands->x.strides[beside] == operands->c.bytes && operands->c.strides[beside] == operands->c.bytes;
}

/* The axis before the last is the row, of `line->bytes` bytes; threads share the rows. */
static void take_rows(const Walker *walker, const tfm_along_step *along, const struct along_operands *operands,
                      Line *line) {
  const tfm_context *context = walker->context;
  int axes = along->rank - 2;
  int64_t rows = product_of_dims(context, along, axes) * line->count;
  int64_t first = rows * walker->thread / walker->threads, end = rows * (walker->thread + 1) / walker->threads;
  line->bytes *= value_of(context, along->dims[axes]);
  for (int64_t row = first; row < end; row++) {
    int64_t i = row % line->count;
    if (i == 0 || row == first) place_line(context, along, operands, axes, row / line->count, line);
    const char *from = line->x + i32_at(line->y + i * line->y_stride) * line->x_stride;
    memcpy(line->c + i * line->c_stride, from, (size_t)line->bytes);
  }
}

/* How many of the lines from number `first` to `end` are walked together. */
static int lines_beside(const tfm_context *context, const tfm_along_step *along, const struct along_operands *operands,
                        int64_t first, int64_t end) {
  int beside = along->rank - 2;
  bool is_sum = along->what == TFM_ALONG_CUMSUM || along->what == TFM_ALONG_TRIANGLE;
  if (!is_sum || along->x.dtype != TFM_F32 || beside < 0) return 1;
  if (operands->x.strides[beside] != sizeof(float) || operands->c.strides[beside] != sizeof(float)) return 1;
  int64_t columns = value_of(context, along->dims[beside]);
  return least_of(columns - first % columns, end - first) >= BESIDE ? BESIDE : 1;
}

void step_along(Walker *walker, const tfm_step *step) {
  const tfm_context *context = walker->context;
  const tfm_along_step *along = &context->program->alongs[step->index];
  const struct along_operands *operands = &operands_of(context, step)->along;
  int last = along->rank - 1;
  Line line = {.x_stride = operands->x.strides[last], .y_stride = operands->y.strides[last],
               .c_stride = operands->c.strides[last], .n = value_of(context, along->n),
               .count = value_of(context, along->dims[last]), .bytes = operands->c.bytes};
  if (takes_rows(along, operands)) {
    take_rows(walker, along, operands, &line);
    return;
  }
  if (along->what == TFM_ALONG_SCATTER) {
    place_line(context, along, operands, 0, 0, &line);
    scatter(walker, along, &line);
    return;
  }
  int64_t lines = line.count ? product_of_dims(context, along, last) : 0;
  int64_t end = lines * (walker->thread + 1) / walker->threads;
  int width;
  for (int64_t i = lines * walker->thread / walker->threads; i < end; i += width) {
    width = lines_beside(context, along, operands, i, end);
    place_line(context, along, operands, last, i, &line);
    compute_line(&line, along, walker->scratch, width);
  }
}

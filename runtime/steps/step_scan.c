/* Running sums along a line, and lines of i32 that become one number.
 *
 * In: lines of f32 or i32. Out: their sums up to each element, in the order of the elements; those of f32 that stand
 * for a product with a triangle of ones have its chains. Refuses nothing; sums of i32 wrap. */
#include <math.h>

#include "steps/lines.h"

// ---- running sums ----

enum { MOST_WAITING = 40 };

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
static void scan_f32(const Line *line, bool is_product, int width) {
  if (width == BESIDE) running_sums(line, is_product, BESIDE);
  else running_sums(line, is_product, 1);
  for (int j = 0; is_product && line->count && j < width; j++) spoil_before(line, j);
}

static void scan_i32(const Line *line) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < line->count; i++) {
    sum += (uint32_t)i32_at(line->x + i * line->x_stride);
    memcpy(line->c + i * line->c_stride, &sum, sizeof sum);
  }
}

// ---- reductions of i32 ----

/* Of nothing: sum 0, max the smallest i32, min the greatest. */
static void scan_to_one(const Line *line, tfm_along what) {
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

// ---- the steps ----

static void scan_line(const Line *line, const tfm_along_step *along, char *scratch, int width) {
  const tfm_along what = (tfm_along)along->what;
  (void)scratch;
  if (what != TFM_ALONG_CUMSUM && what != TFM_ALONG_TRIANGLE) scan_to_one(line, what);
  else if (along->x.dtype == TFM_F32) scan_f32(line, what == TFM_ALONG_TRIANGLE, width);
  else scan_i32(line);
}

void step_scan(Walker *walker, const tfm_step *step) { along_lines(walker, step, scan_line); }

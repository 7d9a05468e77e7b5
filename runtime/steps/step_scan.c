/* Running sums along a line, and lines of i32 that become one number.
 *
 * In: lines of f32 or i32. Out: their sums up to each element, in the order of the elements; those of f32 that stand
 * for a product with a triangle of ones have its chains. Refuses nothing; sums of i32 wrap. */
#include <math.h>

#include "steps/lines.h"

// ---- running sums ----

enum { MOST_WAITING = 40 };

/* Of lines side by side, or of one, whose other numbers are 0: a vector of the compiler, so that it stays in registers
 * from element to element, which arrays do not where code is to be small. */
typedef float Sums __attribute__((vector_size(BESIDE * sizeof(float))));

/* Of the product: what its kernels do to chains of TFM_SHORT_CHAIN steps, and partial_sums.h to the sums of TFM_CHAIN
 * steps. The sums that wait are a binary counter, and chains behind an element hold only zeros. */
typedef struct Waiting {
  Sums sums[MOST_WAITING];
  int n;
  Sums before; /* the short chains before this one, if there are any */
  bool has_before;
} Waiting;

/* The short chain that ends before element i becomes one of those before, and a long chain of these waits. */
static void end_chain(Waiting *waiting, const Sums *chain, int64_t i) {
  Sums sum = waiting->has_before ? waiting->before + *chain : *chain;
  waiting->before = sum;
  waiting->has_before = i % TFM_CHAIN != 0;
  if (waiting->has_before) return;
  for (int64_t number = i / TFM_CHAIN - 1; number & 1; number >>= 1) sum += waiting->sums[--waiting->n];
  waiting->sums[waiting->n++] = sum;
}

/* Chain by chain; without chains all is one. Nothing changes what is added to -0: so begins what has no sum yet, but a
 * product begins with 0. */
static void running_sums(const Line *line, bool has_chains, bool is_single) {
  const Sums zero = {0}, none = -zero;
  Sums x;
  Waiting waiting = {.n = 0};
  const int64_t chain = has_chains ? TFM_SHORT_CHAIN : line->count;
  const char *from = line->x;
  char *to = line->c;
  for (int64_t begin = 0; begin < line->count; begin += chain) {
    Sums sum = has_chains ? zero : none;
    const Sums before = waiting.has_before ? waiting.before : none;
    const int64_t n = least_of(chain, line->count - begin);
    for (int64_t i = 0; i < n; i++, from += line->x_stride, to += line->c_stride) {
      if (is_single) x = (Sums){f32_at(from)};
      else memcpy(&x, from, sizeof x);
      sum += x;
      Sums all = before + sum;
      for (int block = waiting.n; block-- > 0;) all += waiting.sums[block];
      if (is_single) memcpy(to, &(float){all[0]}, sizeof(float));
      else memcpy(to, &all, sizeof all);
    }
    if (has_chains) end_chain(&waiting, &sum, begin + n);
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
  running_sums(line, is_product, width == 1);
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

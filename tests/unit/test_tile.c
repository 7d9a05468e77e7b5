/* Tiles against chains of fmaf (or of rounded products) in plain C: equal bits, for all rows, lengths and tails. */
#include "../support/kernel_bench.h"
#include "forms/rotate.h"
#include "forms/whole_rows.h"
#include "tfm/abi/tiles.h"

enum { MAX_K = 768, PAD = 5 };

typedef struct Case {
  KernelSpec spec;
  size_t kernel;
} Case;

static void fill(float *x, size_t n, uint64_t *seed) {
  for (size_t i = 0; i < n; i++) x[i] = random_float(seed);
}

static float reference(const Case *c, bool fma, const float *a, const float *b, float start, int64_t k, int i, int j) {
  float sum = start;
  for (int64_t at = 0; at < k; at++) {
    float x = a[i * c->spec.a_stride + at * (c->spec.a_step ? c->spec.a_step : 1)], y = b[at * c->spec.b_stride + j];
    if (c->spec.exact_zero && x == 0) y = 0;
    volatile float product = x * y;
    sum = fma ? fmaf(x, y, sum) : sum + product;
  }
  return sum;
}

static void check(KernelBench *bench, const Case *c, const float *a, const float *b, int64_t k, int64_t columns,
                  bool accumulate) {
  static float out[16 * 144], before[16 * 144];
  int64_t stride = c->spec.width + PAD;
  uint64_t seed = 99;
  fill(before, 16 * 144, &seed);
  memcpy(out, before, sizeof out);
  tfm_tile_kernel kernel = (tfm_tile_kernel)(uintptr_t)kernel_get(bench, c->kernel);
  kernel(a, b, out, stride, k, accumulate, columns, (const float *)(uintptr_t)64, k % 5);
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < stride; j++) {
      bool inside = i < c->spec.rows && j < columns;
      float want = before[i * stride + j];
      if (inside) want = reference(c, bench->plan.target->has_fma, a, b, accumulate ? want : 0, k, i, j);
      cr_assert(same_float(out[i * stride + j], want), "%s %ux%u k %d columns %d accumulate %d: [%d][%d] %a, not %a",
                bench->plan.target->name, c->spec.rows, c->spec.width, (int)k, (int)columns, accumulate, i, j,
                (double)out[i * stride + j], (double)want);
    }
}

static void check_case(KernelBench *bench, const Case *c) {
  static const int64_t lengths[] = {0, 1, 3, 4, 5, 17, MAX_K};
  size_t n_a = (size_t)(16 * c->spec.a_stride + MAX_K * (1 + c->spec.a_step)),
         n_b = (size_t)(c->spec.b_stride * (MAX_K + 16) + 144);
  float *a = malloc(n_a * sizeof *a), *b = malloc(n_b * sizeof *b);
  uint64_t seed = 7;
  fill(a, n_a, &seed);
  fill(b, n_b, &seed);
  if (c->spec.exact_zero)
    for (int i = 0; i < c->spec.rows; i++) { /* a weight of 0 against NaN and infinity */
      a[i * c->spec.a_stride + 2] = i % 2 ? 0.0f : -0.0f;
      for (int j = 0; j < c->spec.width; j++) b[2 * c->spec.b_stride + j] = j % 2 ? NAN : INFINITY;
    }
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    int64_t width = c->spec.width, cuts[] = {width, 1, width / 2 + 1, width - 1};
    for (int accumulate = 0; accumulate < 2; accumulate++)
      for (int cut = 0; cut < (lengths[i] == MAX_K ? 2 : 4); cut++)
        check(bench, c, a, b, lengths[i], cuts[cut], accumulate);
  }
  free(a);
  free(b);
}

static void add(KernelBench *bench, Case *cases, size_t *n, TileShape shape, int64_t b_stride, bool exact_zero) {
  for (int rows = 1; rows <= shape.rows; rows++) {
    KernelSpec spec = {.family = KERNEL_TILE,
                       .rows = (uint8_t)rows,
                       .width = shape.width,
                       .a_stride = MAX_K + 3,
                       .b_stride = b_stride,
                       .exact_zero = exact_zero};
    cases[*n] = (Case){spec, kernel_add(bench, spec)};
    ++*n;
  }
}

/* Tiles that call the tile of one row: of another distance between rows, exact, and read down the columns. */
static void add_row_by_row(KernelBench *bench, Case *cases, size_t *n) {
  const TileShape shape = bench->plan.target->gemm_tiles[0];
  for (int kind = 0; kind < 3; kind++) {
    KernelSpec spec = {.family = KERNEL_TILE, .rows = 1, .width = shape.width, .a_stride = kind ? 1 : MAX_K + 16,
                       .b_stride = shape.width, .a_step = kind == 2 ? 19 : 0, .exact_zero = kind == 1};
    const size_t row = kernel_add(bench, spec);
    if (kind < 2) spec.a_stride = MAX_K + 3;
    spec.of_one_row = bench->plan.kernels.items[row].name;
    for (spec.rows = kind == 2 ? 2 : 1; spec.rows <= shape.rows; spec.rows++)
      cases[*n] = (Case){spec, kernel_add(bench, spec)}, ++*n;
  }
}

static void check_target(const char *name) {
  if (!host_runs(name)) return;
  KernelBench bench = kernel_bench_new(name);
  Case cases[200];
  size_t n = 0;
  const TargetInfo *target = bench.plan.target;
  for (int i = 0; i < 3; i++)
    if (target->gemm_tiles[i].rows) add(&bench, cases, &n, target->gemm_tiles[i], target->gemm_tiles[i].width, false);
  for (int i = 0; i < 3; i++)
    if (target->attention_value_widths[i]) {
      TileShape shape = {target->attention_keys.rows, (uint8_t)target->attention_value_widths[i]};
      add(&bench, cases, &n, shape, shape.width + 7, false);
      add(&bench, cases, &n, shape, shape.width + 7, true);
    }
  for (uint8_t vectors = 5; vectors <= 7; vectors = (uint8_t)(vectors + 2)) { /* wider than registers have room for */
    TileShape shape = {target->attention_keys.rows, (uint8_t)(vectors * target->vector_floats)};
    add(&bench, cases, &n, shape, shape.width + 7, vectors == 5);
    add(&bench, cases, &n, shape, shape.width, false);
  }
  KernelSpec transposed = {.family = KERNEL_TILE, .rows = 5, .width = target->gemm_tiles[0].width, .a_stride = 1};
  transposed.a_step = 19, transposed.b_stride = transposed.width;
  cases[n++] = (Case){transposed, kernel_add(&bench, transposed)};
  add_row_by_row(&bench, cases, &n);
  for (uint8_t width = 32; width <= 64 && target->reads_whole_panels; width = (uint8_t)(width + 16)) {
    const KernelSpec spec = {.family = KERNEL_TILE, .rows = 1, .width = width, .a_stride = MAX_K + 3, .b_stride = width,
                             .has_whole_panel = true};
    cases[n++] = (Case){spec, kernel_add(&bench, spec)};
  }
  kernels_compile(&bench);
  for (size_t i = 0; i < n; i++) check_case(&bench, &cases[i]);
  kernel_bench_free(&bench);
}

// ---- whole numbers ----

enum { MOST_ROWS = 16, MOST_WIDTH = 64, MOST_COLUMNS = 288, MOST_FLOATS = TFM_ROW_HEAD + MOST_COLUMNS };

typedef struct Whole {
  tfm_form form;
  int64_t k;
  bool is_of_attention, is_bare; /* rows are not rotated; have no sum before them */
  bool in_pairs;
  int8_t x[MOST_ROWS][MOST_COLUMNS], w[MOST_WIDTH][MOST_COLUMNS];
  float x_scales[MOST_ROWS], w_scales[MOST_WIDTH];
  float rows[MOST_ROWS * MOST_FLOATS] __attribute__((aligned(64)));
  uint8_t panel[(MOST_COLUMNS + 4) * MOST_WIDTH];
} Whole;

/* What is before the numbers, or before each group, and the scale. */
static void check_starts(const Whole *whole, const float *row, int i, int32_t sum, uint8_t bytes, const char *target) {
  const bool is_grouped = whole->form == TFM_FORM_INT4;
  const int64_t step = is_grouped ? TFM_GROUP : (whole->k + 3) / 4 * 4;
  int64_t at = 0;
  for (int64_t first = 0; first < whole->k; first += step, at += tfm_row_bytes(whole->form, bytes, step)) {
    int32_t start, of_group = 0;
    int16_t of_pairs[2] = {0};
    for (int64_t j = first; j < first + step && j < whole->k; j++) {
      of_group += whole->x[i][j];
      of_pairs[j / 2 % 2] = (int16_t)(of_pairs[j / 2 % 2] - 8 * whole->x[i][j]);
    }
    memcpy(&start, (const char *)row + at - 4, sizeof start);
    int32_t wanted = is_grouped ? -8 * of_group : -128 * sum;
    if (is_grouped && whole->in_pairs) memcpy(&wanted, of_pairs, sizeof wanted);
    cr_assert(whole->is_bare || start == wanted, "%s k %d row %d", target, (int)whole->k, i);
  }
  float scale;
  memcpy(&scale, (const char *)row + at - (is_grouped ? 4 : 0), sizeof scale);
  cr_assert(same_float(scale, whole->x_scales[i]), "%s k %d row %d", target, (int)whole->k, i);
}

/* By how much the sum of a pair, whose first number this is, is too large. */
static int rest_of(const Whole *whole, int i, int64_t at) {
  if (!whole->in_pairs || whole->form != TFM_FORM_INT8 || at % 2 || at >= whole->k) return 0;
  const int sum = whole->x[i][at] + (at + 1 < whole->k ? whole->x[i][at + 1] : 0);
  return sum - (sum > 128 ? 128 : sum < -128 ? -128 : sum);
}

/* The fours that have rests, behind the scale, and no others. */
static void check_rests(const Whole *whole, const float *row, int i, const char *target) {
  const int32_t fours = (int32_t)(whole->k + 3) / 4;
  const char *list = (const char *)row + fours * 4 + TFM_RESTS_AT;
  int32_t n = 0, listed;
  for (int32_t four = 0; four < fours; four++) {
    const int8_t rests[4] = {(int8_t)rest_of(whole, i, four * 4), 0, (int8_t)rest_of(whole, i, four * 4 + 2), 0};
    if (!rests[0] && !rests[2]) continue;
    memcpy(&listed, list + n * 8, 4);
    cr_assert(listed == four && !memcmp(list + n * 8 + 4, rests, 4), "%s k %d row %d: entry %d", target,
              (int)whole->k, i, n);
    n++;
  }
  memcpy(&listed, list - TFM_RESTS_AT + 4, 4);
  cr_assert_eq(listed, n, "%s k %d row %d: %d entries, not %d", target, (int)whole->k, i, listed, n);
}

/* Whole numbers, up to 127 of them and so their own scale: pairs whose sum is just small enough or too large. */
static void fill_pairs(float *x, int i, int64_t k) {
  static const int8_t pairs[][2] = {{127, 127}, {-127, -127}, {127, -127}, {64, 64},   {65, 64},   {-64, -64}, {-64, -65},
                                    {127, 1},   {127, 2},     {1, 127},    {2, 127},   {-127, -1}, {-127, -2}, {-2, -127},
                                    {126, 126}, {-3, 127}};
  for (int64_t at = 0; at < k; at++) x[at] = pairs[(i + (i % 3 == 2 ? at / 2 * 7 : 0)) % 16][at % 2];
  if (i % 3 == 1 && k > 40) memset(x + 4, 0, 32 * sizeof *x);
  x[k - 1] = i % 2 ? 127 : -127;
}

/* Some of them are extreme. */
static void fill_row(float *x, int i, int64_t k, uint64_t *seed) {
  const int64_t period = rotate_period(k);
  fill(x, MOST_COLUMNS, seed);
  if (i == 3) x[k - 1] = 1e30f;
  if (i == 4) memset(x, 0, MOST_COLUMNS * sizeof *x);
  if (i == 5) x[0] = NAN;
  if (i == 6) x[k / 2] = -INFINITY;
  for (int at = 0; i == 7 && at < k; at++) x[at] *= 0x1p-110f;
  for (int at = 0; i == 8 && at < k; at++) x[at] = at % period < (period + 15) / 16; /* all are 127 */
}

/* A row takes no more than it is given, even if all numbers have rests. */
static void check_room(const Whole *whole, tfm_quantize_kernel quantize, const float *x, float *work) {
  static float row[2 * MOST_FLOATS] __attribute__((aligned(64)));
  const int64_t end = tfm_split_row_floats(whole->k);
  memset(row, 1, sizeof row);
  quantize(x, 0, 1, work, row + TFM_ROW_HEAD, 0);
  for (int64_t i = end; i < 2 * MOST_FLOATS; i++) cr_assert(same_float(row[i], 0x1.020202p-125f), "k %d", (int)whole->k);
}

/* Rows of the kernel, all in one call, against those of the definition. */
static void fill_rows(Whole *whole, tfm_quantize_kernel quantize, uint8_t bytes, const char *target) {
  uint64_t seed = 5;
  static float all[MOST_ROWS][MOST_COLUMNS];
  float work[MOST_COLUMNS + 16] __attribute__((aligned(64)));
  for (int i = 0; i < MOST_ROWS; i++) {
    fill_row(all[i], i, whole->k, &seed);
    if (whole->is_of_attention && whole->in_pairs) fill_pairs(all[i], i, whole->k);
  }
  memset(whole->rows, 1, sizeof whole->rows);
  if (whole->in_pairs && whole->form == TFM_FORM_INT8) check_room(whole, quantize, all[0], work);
  quantize(all[0], sizeof all[0], MOST_ROWS, work, whole->rows + TFM_ROW_HEAD, MOST_FLOATS * sizeof(float));
  for (int i = 0; i < MOST_ROWS; i++) {
    float *x = all[i], *row = whole->rows + i * MOST_FLOATS + TFM_ROW_HEAD;
    if (!whole->is_of_attention) rotate_row(x, whole->k);
    whole->x_scales[i] = whole_round(x, whole->k, whole->x[i]);
    int32_t sum = 0;
    const int8_t *numbers = (const int8_t *)row;
    for (int64_t at = 0; at < (whole->k + 3) / 4 * 4; at++) {
      int64_t place = bytes == 1 ? at : (at & ~3) | (at & 1) << 1 | (at >> 1 & 1);
      int16_t word = 0;
      place = place * bytes + (whole->form == TFM_FORM_INT4 ? at / TFM_GROUP * 4 : 0);
      if (bytes == 1)
        word = numbers[place];
      else
        memcpy(&word, numbers + place, 2);
      int wanted = at < whole->k ? whole->x[i][at] : 0;
      sum += wanted;
      wanted -= rest_of(whole, i, at);
      cr_assert_eq(word, wanted, "%s k %d row %d [%d]: %d, not %d", target, (int)whole->k, i, (int)at, word, wanted);
    }
    check_starts(whole, row, i, sum, bytes, target);
    if (whole->in_pairs && whole->form == TFM_FORM_INT8) check_rests(whole, row, i, target);
  }
}

static void fill_panel(Whole *whole, int64_t width) {
  uint64_t seed = 8;
  const int64_t fours = (whole->k + 3) / 4;
  memset(whole->panel, 128, sizeof whole->panel);
  for (int64_t column = 0; column < width; column++) {
    whole->w_scales[column] = random_float(&seed);
    memcpy(whole->panel + (fours * width + column) * 4, &whole->w_scales[column], 4);
    for (int64_t at = 0; at < whole->k; at++) {
      const int number = (int)(random_float(&seed) * 127), extremes[] = {number, at % 2 ? 127 : -127, 127, -127};
      whole->w[column][at] = (int8_t)extremes[column < 4 ? column : 0];
      whole->panel[(at / 4 * width + column) * 4 + at % 4] = (uint8_t)(whole->w[column][at] + 128);
    }
  }
}

/* The numbers of the definition as weights/pack.c lays them out. */
static void fill_panel_of_4(Whole *whole, int64_t width) {
  uint64_t seed = 8;
  memset(whole->panel, 0, sizeof whole->panel);
  for (int64_t column = 0; column < width; column++) {
    whole->w_scales[column] = random_float(&seed);
    memcpy(whole->panel + tfm_form_bytes(TFM_FORM_INT4, whole->k) * width + column * 4, &whole->w_scales[column], 4);
    for (int64_t at = 0; at < whole->k; at++) {
      const int64_t group = at / TFM_GROUP;
      uint8_t *block =
          whole->panel + tfm_form_bytes(TFM_FORM_INT4, group / TFM_GROUPS * TFM_GROUPS * TFM_GROUP) * width;
      int8_t *step = (int8_t *)block + column * TFM_GROUPS + group % TFM_GROUPS;
      if (at % TFM_GROUP == 0) *step = (int8_t)(column == 1 ? -15 : column == 2 ? 15 : (int)(random_float(&seed) * 15));
      const int f = column == 1 ? -8 : column == 2 ? 7 : (int)(random_float(&seed) * 7);
      whole->w[column][at] = (int8_t)(f * *step);
      block += width * TFM_GROUPS + (at / 8 - group / TFM_GROUPS * TFM_GROUPS * 4) * width * 4 + column * 4 + at % 4;
      *block |= (uint8_t)((f + 8) << (at % 8 < 4 ? 0 : 4));
    }
  }
}

/* In one call, and in two that cut k. */
static void check_whole(KernelBench *bench, const Whole *whole, size_t tile, int rows, int width, uint8_t bytes) {
  static float c[MOST_ROWS * (MOST_WIDTH + PAD)];
  const int64_t stride = width + PAD, piece = whole->form == TFM_FORM_INT4 ? TFM_GROUP * TFM_GROUPS : 4;
  const int64_t first = whole->k / (2 * piece) * piece;
  const char *a = (const char *)(whole->rows + TFM_ROW_HEAD);
  tfm_tile_kernel kernel = (tfm_tile_kernel)(uintptr_t)kernel_get(bench, tile);
  for (int cut = 0; cut < 2; cut++)
    for (int columns = width - 3; columns <= width; columns += 3) {
      memset(c, 0, sizeof c);
      if (cut) {
        kernel((const float *)a, whole->panel, c, stride, first, 2, columns, a, 2);
        kernel((const float *)(a + tfm_row_bytes(whole->form, bytes, first)),
               whole->panel + tfm_form_bytes(whole->form, first) * width, c, stride, whole->k - first, 1, columns, a,
               9);
      } else {
        kernel((const float *)a, whole->panel, c, stride, whole->k, 0, columns, a, 0);
      }
      for (int i = 0; i < rows; i++)
        for (int j = 0; j < stride; j++) {
          int64_t sum = 0;
          for (int64_t at = 0; j < columns && at < whole->k; at++) sum += whole->x[i][at] * whole->w[j][at];
          float wanted = j < columns ? (float)sum * whole->x_scales[i] * whole->w_scales[j] : 0;
          cr_assert(same_float(c[i * stride + j], wanted), "%s %dx%d k %d cut %d [%d][%d]: %a, not %a",
                    bench->plan.target->name, rows, width, (int)whole->k, cut, i, j, (double)c[i * stride + j],
                    (double)wanted);
        }
    }
}

/* Rows that nobody made are computed for nobody: the tile returns. */
static void check_left_out(KernelBench *bench, Whole *whole, size_t tile, int width) {
  static float c[MOST_ROWS * MOST_WIDTH];
  tfm_tile_kernel kernel = (tfm_tile_kernel)(uintptr_t)kernel_get(bench, tile);
  for (int byte = 0; byte < 256; byte += 51) { /* a number of rests and of fours that is too large, negative too */
    memset(whole->rows, byte, sizeof whole->rows);
    kernel(whole->rows + TFM_ROW_HEAD, whole->panel, c, width, whole->k, 0, width, whole->panel, 0);
  }
}

typedef enum Way { AS_IT_COMES, IN_WORDS, IN_TILE_REGISTERS, PAIRS_AS_THEY_ARE } Way;

/* Of tiles that are made for k, each k has every second number of rows: each tile takes its time to compile. */
static bool is_left_out(int length, int rows, int most) { return rows < most && rows % 2 == length % 2; }

/* IN_WORDS: as in attention where there are no products of bytes. PAIRS_AS_THEY_ARE: of rows that are not rotated. */
static void check_whole_numbers(const char *name, tfm_form form, Way way) {
  static const int64_t lengths_of_8[] = {1, 2, 3, 20, 35, 64, 96, 207},
                       lengths_of_4[] = {32, 64, 96, 128, 160, 224, 256, 288};
  const int64_t *lengths = form == TFM_FORM_INT8 ? lengths_of_8 : lengths_of_4;
  if (!host_runs(name)) return;
  KernelBench bench = kernel_bench_new(name);
  const TargetInfo *target = bench.plan.target;
  const bool is_matrix = way == IN_TILE_REGISTERS, in_pairs = target->dot_pairs && way != IN_WORDS;
  const bool of_k = in_pairs && form == TFM_FORM_INT8; /* a tile is made for its k */
  const uint8_t bytes = target->dot_bytes || in_pairs ? 1 : 2;
  static const uint32_t panels[] = {48, 64, 32};
  TileShape shapes[3];
  size_t quantize[8], tiles[8][3][MOST_ROWS + 1];
  for (int l = 0; l < 8; l++)
    quantize[l] = kernel_add(
        &bench,
        (KernelSpec){
            .family = KERNEL_QUANTIZE, .k = lengths[l], .is_rotated = way != PAIRS_AS_THEY_ARE,
            .is_grouped = form == TFM_FORM_INT4, .in_pairs = in_pairs});
  for (int i = 0; i < 3; i++) {
    shapes[i] = target_whole_tile(target, panels[i]);
    if (way == IN_WORDS) shapes[i] = target->word_tile;
    if (form == TFM_FORM_INT4) shapes[i].rows /= 2;
    if (is_matrix) shapes[i] = (TileShape){target->matrix.rows, (uint8_t)panels[i]};
    for (int rows = 1; rows <= shapes[i].rows; rows++)
      for (int l = 0; l < 8; l++) {
        KernelSpec spec = {.family = KERNEL_TILE, .rows = (uint8_t)rows, .width = shapes[i].width};
        spec.a_stride = MOST_FLOATS, spec.b_stride = spec.width, spec.b_form = (uint8_t)form;
        spec.is_matrix = is_matrix, spec.in_pairs = in_pairs, spec.k = of_k ? lengths[l] : 0;
        if (of_k && is_left_out(l, rows, shapes[i].rows)) tiles[l][i][rows] = SIZE_MAX;
        else tiles[l][i][rows] = l && !of_k ? tiles[0][i][rows] : kernel_add(&bench, spec);
      }
  }
  kernels_compile(&bench);
  if (is_matrix) tfm_tiles_begin();
  static Whole whole;
  for (int l = 0; l < 8; l++) {
    whole.k = lengths[l];
    whole.form = form;
    whole.in_pairs = in_pairs;
    whole.is_of_attention = way == PAIRS_AS_THEY_ARE;
    fill_rows(&whole, (tfm_quantize_kernel)(uintptr_t)kernel_get(&bench, quantize[l]), bytes, name);
    for (int i = 0; i < 3; i++) {
      const TileShape shape = shapes[i];
      (form == TFM_FORM_INT8 ? fill_panel : fill_panel_of_4)(&whole, shape.width);
      for (int rows = 1; rows <= shape.rows; rows++)
        if (tiles[l][i][rows] < SIZE_MAX) check_whole(&bench, &whole, tiles[l][i][rows], rows, shape.width, bytes);
    }
    for (int i = 0; i < 3 && in_pairs; i++) check_left_out(&bench, &whole, tiles[l][i][shapes[i].rows], shapes[i].width);
  }
  if (is_matrix) tfm_tiles_end();
  kernel_bench_free(&bench);
}

/* One row by all columns of a panel at once. */
static void check_whole_panels(const TargetInfo *target) {
  static const int64_t lengths[] = {1, 3, 20, 64, 207};
  if (!target->reads_whole_panels || !host_runs(target->name)) return;
  KernelBench bench = kernel_bench_new(target->name);
  const bool in_pairs = target->dot_pairs;
  size_t quantize[5], tiles[5][3];
  for (int l = 0; l < 5; l++) {
    const KernelSpec rows = {.family = KERNEL_QUANTIZE, .k = lengths[l], .is_rotated = true, .in_pairs = in_pairs};
    quantize[l] = kernel_add(&bench, rows);
    for (int i = 0; i < 3; i++) {
      const uint8_t width = (uint8_t)(32 + 16 * i);
      const KernelSpec spec = {.family = KERNEL_TILE, .rows = 1, .width = width, .a_stride = MOST_FLOATS, .b_stride = width,
                               .b_form = TFM_FORM_INT8, .in_pairs = in_pairs, .k = in_pairs ? lengths[l] : 0,
                               .has_whole_panel = true};
      tiles[l][i] = kernel_add(&bench, spec);
    }
  }
  kernels_compile(&bench);
  static Whole whole = {.form = TFM_FORM_INT8};
  whole.in_pairs = in_pairs;
  for (int l = 0; l < 5; l++) {
    whole.k = lengths[l];
    fill_rows(&whole, (tfm_quantize_kernel)(uintptr_t)kernel_get(&bench, quantize[l]), 1, target->name);
    for (int i = 0; i < 3; i++) {
      fill_panel(&whole, 32 + 16 * i);
      check_whole(&bench, &whole, tiles[l][i], 1, 32 + 16 * i, 1);
    }
  }
  kernel_bench_free(&bench);
}

Test(tile, whole_panels) {
  for (const TargetInfo *target = targets; target->name; target++) check_whole_panels(target);
}

Test(tile, whole_numbers) {
  for (const TargetInfo *target = targets; target->name; target++) check_whole_numbers(target->name, TFM_FORM_INT8, AS_IT_COMES);
}

Test(tile, whole_numbers_on_tile_registers) {
  for (const TargetInfo *target = targets; target->name; target++)
    if (target->matrix.rows) check_whole_numbers(target->name, TFM_FORM_INT8, IN_TILE_REGISTERS);
}

Test(tile, whole_numbers_in_words) {
  for (const TargetInfo *target = targets; target->name; target++)
    if (target->dot_pairs) check_whole_numbers(target->name, TFM_FORM_INT8, IN_WORDS);
}

/* Nothing may be cut to 16 bits, whatever pairs there are. */
Test(tile, pairs_whose_sums_are_large) {
  for (const TargetInfo *target = targets; target->name; target++)
    if (target->dot_pairs) check_whole_numbers(target->name, TFM_FORM_INT8, PAIRS_AS_THEY_ARE);
}

Test(tile, numbers_of_4_bits) {
  for (const TargetInfo *target = targets; target->name; target++) check_whole_numbers(target->name, TFM_FORM_INT4, AS_IT_COMES);
}

/* Rows of queries, keys and values: short ones of whole vectors stay in registers. */
Test(tile, rows_of_attention) {
  static const int64_t lengths[] = {1, 3, 16, 20, 32, 64, 128, 144};
  enum { LENGTHS = sizeof lengths / sizeof *lengths };
  for (const TargetInfo *target = targets; target->name; target++) {
    if (!host_runs(target->name)) continue;
    KernelBench bench = kernel_bench_new(target->name);
    size_t kernels[LENGTHS][2];
    for (int l = 0; l < LENGTHS; l++)
      for (int as_bytes = 0; as_bytes < 2; as_bytes++)
        kernels[l][as_bytes] =
            kernel_add(&bench, (KernelSpec){.family = KERNEL_QUANTIZE, .k = lengths[l], .as_bytes = as_bytes});
    kernels_compile(&bench);
    static Whole whole;
    whole.form = TFM_FORM_INT8;
    for (int l = 0; l < LENGTHS; l++)
      for (int as_bytes = 0; as_bytes < 2; as_bytes++) {
        whole.k = lengths[l];
        whole.is_of_attention = true;
        whole.is_bare = as_bytes;
        const uint8_t bytes = as_bytes || target->dot_bytes ? 1 : 2;
        fill_rows(&whole, (tfm_quantize_kernel)(uintptr_t)kernel_get(&bench, kernels[l][as_bytes]), bytes,
                  target->name);
      }
    kernel_bench_free(&bench);
  }
}

// ---- direct products ----

enum { DIRECT_ITEMS = 3, DIRECT_FLOATS = 16384 };

typedef struct DirectCase {
  KernelSpec spec;
  size_t kernel;
  int64_t rows, columns, k;
} DirectCase;

/* Distances in floats, of items, rows and steps or columns. In the form columns x lies along its rows, in the form rows
 * the columns of y are lines; where they may be anything they are. */
static void check_direct(KernelBench *bench, const DirectCase *d, const float *x, const float *y) {
  static float c[4096], before[4096];
  const bool by_rows = d->spec.width > 0;
  const int64_t x_step = by_rows ? 1 : d->rows + 2, x_row = by_rows ? d->k + 3 : 1, columns = d->columns,
                y_step = d->spec.y_is_line ? 1 : columns + 1, y_column = d->spec.y_is_line ? d->k + 1 : 1,
                c_row = columns + d->k % 2, c_item = d->rows * c_row + 1;
  uint64_t seed = 3;
  fill(before, 4096, &seed);
  memcpy(c, before, sizeof c);
  const tfm_direct_args args = {.x = (const char *)x,
                                .y = (const char *)y,
                                .c = (char *)c,
                                .items = DIRECT_ITEMS,
                                .rows = d->rows,
                                .columns = columns,
                                .k = d->k,
                                .x_item = 28,
                                .y_item = 20,
                                .x_row = 4 * x_row,
                                .x_step = 4 * x_step,
                                .y_step = 4 * y_step,
                                .y_column = 4 * y_column,
                                .c_item = 4 * c_item,
                                .c_row = 4 * c_row};
  ((tfm_direct_kernel)(uintptr_t)kernel_get(bench, d->kernel))(&args);
  for (int64_t item = 0; item < DIRECT_ITEMS; item++)
    for (int64_t i = 0; i < d->rows; i++)
      for (int64_t j = 0; j < columns; j++) {
        float sum = 0, *place = &before[item * c_item + i * c_row + j];
        for (int64_t k = 0; k < d->k; k++) {
          float a = x[7 * item + i * x_row + k * x_step], b = y[5 * item + k * y_step + j * y_column];
          volatile float product = a * b;
          sum = bench->plan.target->has_fma ? fmaf(a, b, sum) : sum + product;
        }
        *place = sum;
      }
  for (int i = 0; i < 4096; i++) /* what lies between the results too */
    cr_assert(same_float(c[i], before[i]), "%s direct %ux%u, %d rows %d columns k %d: [%d] %a, not %a",
              bench->plan.target->name, d->spec.rows, d->spec.width, (int)d->rows, (int)columns, (int)d->k, i,
              (double)c[i], (double)before[i]);
}

static void check_direct_target(const TargetInfo *target) {
  static const int64_t lengths[] = {0, 1, 5, 16, 40};
  if (!host_runs(target->name)) return;
  KernelBench bench = kernel_bench_new(target->name);
  const bool masks = target_masks(target, sizeof(float));
  static DirectCase cases[1000];
  size_t n = 0;
  for (int l = 0; l < 5; l++) {
    for (int rows = masks ? 1 : 33; rows <= 8; rows++)
      for (int fixed = 0; fixed < 2; fixed++)
        for (int columns = 1; columns <= (int)target->vector_floats; columns += columns == 1 ? 3 : 4)
          cases[n++] = (DirectCase){{.family = KERNEL_DIRECT, .rows = (uint8_t)(fixed * rows)},
                                    .rows = rows + (fixed ? 0 : 9),
                                    .columns = columns,
                                    .k = lengths[l]};
    for (int width = 1; width <= 4; width++)
      for (int rows = 1; rows <= 37; rows += 9)
        cases[n++] = (DirectCase){{.family = KERNEL_DIRECT, .width = (uint8_t)width, .y_is_line = rows % 2},
                                  .rows = rows,
                                  .columns = width,
                                  .k = lengths[l]};
  }
  size_t first[2][9][2];
  memset(first, 255, sizeof first);
  for (size_t i = 0; i < n; i++) { /* one kernel of each kind */
    size_t *known = &first[cases[i].spec.width > 0][cases[i].spec.rows + cases[i].spec.width][cases[i].spec.y_is_line];
    if (*known == SIZE_MAX) *known = kernel_add(&bench, cases[i].spec);
    cases[i].kernel = *known;
  }
  kernels_compile(&bench);
  float *x = malloc(DIRECT_FLOATS * sizeof *x), *y = malloc(DIRECT_FLOATS * sizeof *y);
  uint64_t seed = 11;
  fill(x, DIRECT_FLOATS, &seed);
  fill(y, DIRECT_FLOATS, &seed);
  for (size_t i = 0; i < n; i++) check_direct(&bench, &cases[i], x, y);
  free(x);
  free(y);
  kernel_bench_free(&bench);
}

Test(tile, direct) {
  for (const TargetInfo *target = targets; target->name; target++) check_direct_target(target);
}

Test(tile, baseline) { check_target("x86-64"); }
Test(tile, avx2) { check_target("x86-64-v3"); }
Test(tile, avx512) { check_target("x86-64-v4"); }

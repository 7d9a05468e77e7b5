/* The steps of the runtime one by one, on programs made by hand: products of activations, reductions along rows, tables,
 * gathers, checks of computed ids, faults, prepare steps, and how buffers share memory. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hand_program.h"
#include "machine/features.h"
#include "tfm/abi/double_functions.h"

static tfm_context *context_new(const HandProgram *hand, int32_t threads) {
  tfm_context *context;
  tfm_error error;
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  cr_assert_eq(tfm_context_create(&hand->program, NULL, &options, &context, &error), TFM_OK, "%s", error.message);
  return context;
}

static tfm_status run(tfm_context *context, const tfm_value *inputs, void *output, tfm_error *error) {
  const tfm_value outputs[] = {{output, TFM_F32, 0, NULL}};
  tfm_status status = tfm_context_bind(context, inputs, error);
  return status ? status : tfm_context_run(context, inputs, outputs, error);
}

static float *floats_new(int64_t n, uint32_t seed) {
  float *numbers = malloc((size_t)(n + 1) * sizeof *numbers);
  cr_assert(numbers);
  hand_fill(numbers, n, seed);
  return numbers;
}

static float *at(const tfm_row_args *args, int operand, int64_t row, int64_t column) {
  const tfm_row_operand *o = &args->operands[operand];
  return (float *)(o->base + row * o->row_stride + column * o->column_stride);
}

/* --- Products ------------------------------------------------------------------------------------------------------ */

enum { BATCH, M, N, K };

static void hand_direct(const tfm_direct_args *a) {
  for (int64_t item = 0; item < a->items; item++)
    for (int64_t i = 0; i < a->rows; i++)
      for (int64_t j = 0; j < a->columns; j++) {
        const char *x = a->x + item * a->x_item + i * a->x_row, *y = a->y + item * a->y_item + j * a->y_column;
        float sum = 0;
        for (int64_t k = 0; k < a->k; k++)
          sum += *(const float *)(x + k * a->x_step) * *(const float *)(y + k * a->y_step);
        *(float *)(a->c + item * a->c_item + i * a->c_row + j * 4) = sum;
      }
}

/* c += 1 as an epilogue. */
static void add_one(const tfm_row_args *args) {
  for (int64_t i = 0; i < args->rows; i++)
    for (int64_t j = 0; j < args->columns; j++) *at(args, 0, i, j) += 1;
}

/* c [batch, m, n] = x [batch, m, k] times y [batch, n, k] transposed; + 1 if it is direct. */
static void matmul_program(HandProgram *hand, tfm_direct direct) {
  hand_open(hand, "matmul");
  tfm_size batch = hand_symbol(hand, "batch"), m = hand_symbol(hand, "m"), n = hand_symbol(hand, "n"),
           k = hand_symbol(hand, "k");
  tfm_size m_k = hand_product(hand, 1, 2, (const uint8_t[]){M, K}), n_k = hand_product(hand, 1, 2, (const uint8_t[]){N, K});
  tfm_size m_n = hand_product(hand, 1, 2, (const uint8_t[]){M, N});
  hand_input(hand, "x", TFM_F32, "f32[batch, m, k]", 3, (const tfm_size[]){batch, m, k});
  hand_input(hand, "y", TFM_F32, "f32[batch, n, k]", 3, (const tfm_size[]){batch, n, k});
  hand_output(hand, "c", TFM_F32, "f32[batch, m, n]", 3, (const tfm_size[]){batch, m, n});
  hand->matmuls[0] = (tfm_matmul_step){
      .pack = hand_kernel(hand, (void (*)(void))hand_pack), .tile_rows = HAND_TILE_ROWS, .width = HAND_WIDTH, .rank = 3,
      .k = k, .epilogue = TFM_NONE, .dims = {batch, m, n},
      .x = hand_operand(TFM_SPACE_INPUT, 0, TFM_F32, 3, (const tfm_size[]){m_k, k, 1}),
      .y = hand_operand(TFM_SPACE_INPUT, 1, TFM_F32, 3, (const tfm_size[]){n_k, 1, k}),
      .c = hand_operand(TFM_SPACE_OUTPUT, 0, TFM_F32, 3, (const tfm_size[]){m_n, n, 1})};
  hand_use_tiles(hand, HAND_A_STRIP, hand->matmuls[0].tiles);
  if (direct) {
    tfm_matmul_step *step = &hand->matmuls[0];
    step->direct = (uint8_t)direct;
    step->direct_columns = HAND_WIDTH;
    step->direct_kernel = hand_kernel(hand, (void (*)(void))hand_direct);
    step->epilogue = hand_kernel(hand, (void (*)(void))add_one);
    step->n_operands = 1;
    step->first_operand = hand_operands(hand, 1, &step->c);
  }
  hand_step(hand, TFM_STEP_MATMUL, 0, hand_constant(hand, 1000000));
  hand_close(hand);
}

/* The same with a mask: of rows, zeroed elsewhere, or of steps, one for all items or one for each. */
static void masked_program(HandProgram *hand, tfm_live_steps how) {
  static tfm_live_rows live;
  matmul_program(hand, TFM_DIRECT_NONE);
  const tfm_size sizes[] = {hand->matmuls[0].dims[0], how ? hand->matmuls[0].k : hand->matmuls[0].dims[1]};
  const bool is_shared = how == TFM_STEPS_SHARED;
  hand_input(hand, "mask", TFM_BOOL, "bool[batch, time]", is_shared ? 1 : 2, is_shared ? sizes + 1 : sizes);
  live = (tfm_live_rows){.where = 1, .zeroed = !how,
                         .mask = hand_operand(TFM_SPACE_INPUT, 2, TFM_BOOL, 1, (const tfm_size[]){1})};
  hand->program.live = &live;
  hand->program.n_live = 1;
  hand->matmuls[0].live = 1;
  hand->matmuls[0].live_steps = (uint8_t)how;
  hand->matmuls[0].adds_chains = how != TFM_STEPS_ALL;
  hand_close(hand);
}

static float tree(const float *chains, int64_t n, int64_t first, int64_t width) {
  if (width == 1) return first < n ? chains[first] : 0;
  return tree(chains, n, first, width / 2) + tree(chains, n, first + width / 2, width / 2);
}

static void matmul_check_form(int64_t batch, int64_t m, int64_t n, int64_t k, int32_t threads, tfm_direct direct) {
  static HandProgram hand;
  matmul_program(&hand, direct);
  float *x = floats_new(batch * m * k, 1), *y = floats_new(batch * n * k, 2), *c = floats_new(batch * m * n, 3);
  const int64_t x_dims[] = {batch, m, k}, y_dims[] = {batch, n, k};
  const tfm_value inputs[] = {{x, TFM_F32, 3, x_dims}, {y, TFM_F32, 3, y_dims}};
  tfm_context *context = context_new(&hand, threads);
  tfm_error error;
  cr_assert_eq(run(context, inputs, c, &error), TFM_OK, "%s", error.message);
  for (int64_t i = 0; i < batch * m * n; i++) {
    const float *row = x + i / n * k, *column = y + (i / (m * n) * n + i % n) * k;
    float chains[4] = {0};
    for (int64_t j = 0; j < k; j++) chains[j / TFM_CHAIN] += row[j] * column[j];
    float sum = tree(chains, k / TFM_CHAIN + 1, 0, 4);
    if (direct) sum += 1;
    cr_assert_eq(c[i], sum, "%lld x %lld x %lld, %d threads, element %lld", (long long)m, (long long)n, (long long)k,
                 threads, (long long)i);
  }
  tfm_context_destroy(context);
  free(x);
  free(y);
  free(c);
}

static void matmul_check(int64_t batch, int64_t m, int64_t n, int64_t k, int32_t threads) {
  matmul_check_form(batch, m, n, k, threads, TFM_DIRECT_NONE);
}

/* What is left out holds NaN in both factors. */
static void masked_check(int64_t batch, int64_t m, int64_t n, int64_t k, int32_t threads, tfm_live_steps how) {
  static HandProgram hand;
  masked_program(&hand, how);
  const int64_t length = how ? k : m, items = how == TFM_STEPS_SHARED ? 1 : batch;
  float *x = floats_new(batch * m * k, 1), *y = floats_new(batch * n * k, 2), *c = floats_new(batch * m * n, 3);
  uint8_t *mask = malloc((size_t)(items * length + 1));
  uint32_t random = 7;
  for (int64_t i = 0; i < items * length; i++) mask[i] = (random = random * 1664525 + 1013904223) >> 8 & (i / 30 % 2 ? 1 : 3) ? 1 : 0;
  const uint8_t *const of = mask;
#define IS_LIVE(item, at) of[(items == 1 ? 0 : (item)) * length + (at)]
  for (int64_t i = 0; i < batch * m * k; i++)
    if (!IS_LIVE(i / (m * k), how ? i % k : i / k % m)) x[i] = NAN;
  for (int64_t i = 0; i < batch * n * k && how; i++)
    if (!IS_LIVE(i / (n * k), i % k)) y[i] = NAN;
  const int64_t x_dims[] = {batch, m, k}, y_dims[] = {batch, n, k}, dims[] = {batch, length};
  const tfm_value inputs[] = {{x, TFM_F32, 3, x_dims}, {y, TFM_F32, 3, y_dims},
                              {mask, TFM_BOOL, how == TFM_STEPS_SHARED ? 1 : 2, dims + (how == TFM_STEPS_SHARED)}};
  tfm_context *context = context_new(&hand, threads);
  tfm_error error;
  cr_assert_eq(run(context, inputs, c, &error), TFM_OK, "%s", error.message);
  for (int64_t i = 0; i < batch * m * n; i++) {
    const int64_t item = i / (m * n), row = i / n % m;
    float chains[4] = {0}, sum = 0;
    for (int64_t j = 0; j < k; j++) {
      if (IS_LIVE(item, how ? j : row)) sum += x[i / n * k + j] * y[(item * n + i % n) * k + j];
      const int64_t of_chain = how ? TFM_SHORT_CHAIN : TFM_CHAIN;
      if (j + 1 < k && (j + 1) % of_chain) continue;
      chains[j / TFM_CHAIN] += sum;
      sum = 0;
    }
    cr_assert_eq(c[i], tree(chains, k / TFM_CHAIN + 1, 0, 4), "%lld x %lld x %lld, %d threads, element %lld, mask %d",
                 (long long)m, (long long)n, (long long)k, threads, (long long)i, how);
  }
#undef IS_LIVE
  tfm_context_destroy(context);
  free(mask);
  free(x);
  free(y);
  free(c);
}

Test(runtime_steps, products_with_rows_or_steps_left_out) {
  for (int32_t threads = 1; threads <= 3; threads++)
    for (tfm_live_steps how = TFM_STEPS_ALL; how <= TFM_STEPS_OF_ITEM; how++) {
      masked_check(1, 1, 1, 1, threads, how);
      masked_check(3, 9, 13, 1100, threads, how);
      masked_check(1, 70, 300, 40, threads, how);
      masked_check(2, 30, 40, 3000, threads, how);
      masked_check(1, 50, 40, 20000, threads, how);
      masked_check(2, HAND_TILE_ROWS, 5 * HAND_WIDTH + 1, 20000, threads, how);
      masked_check(2, 3, 5, 0, threads, how);
    }
}

/* Items together, cut by rows, and chain by chain; with too many columns side by side, tiles; turned, one row. */
Test(runtime_steps, direct_products) {
  for (int32_t threads = 1; threads <= 3; threads++)
    for (tfm_direct direct = TFM_DIRECT_COLUMNS; direct <= TFM_DIRECT_ROWS; direct++) {
      matmul_check_form(700, 3, 3, 5, threads, direct);
      matmul_check_form(1, 300, 2, 40, threads, direct);
      matmul_check_form(2, 21, 3, 20000, threads, direct);
      matmul_check_form(3, 4, HAND_WIDTH + 1, 7, threads, direct);
      matmul_check_form(2, 3, 4, 0, threads, direct);
      matmul_check_form(5, 1, 200, 30, threads, TFM_DIRECT_TURNED);
      matmul_check_form(1, 1, 900, 20000, threads, TFM_DIRECT_TURNED);
    }
}

Test(runtime_steps, products_of_activations) {
  for (int32_t threads = 1; threads <= 3; threads++) {
    matmul_check(1, 1, 1, 1, threads);
    matmul_check(3, 9, 13, 1100, threads);
    matmul_check(1, 70, 300, 40, threads);
    matmul_check(2, 30, 40, 3000, threads);  /* block of k by block of k, all strips for each */
    matmul_check(1, 50, 40, 20000, threads); /* so too, in two chains, and in three: */
    matmul_check(1, 70, 45, 3 * TFM_CHAIN - 700, threads);
    matmul_check(2, HAND_TILE_ROWS, 5 * HAND_WIDTH + 1, 20000, threads); /* one strip: y is packed block by block */
    matmul_check(2, 3, 5, 0, threads);
    matmul_check(0, 3, 5, 7, threads);
    matmul_check(2, 0, 5, 7, threads);
    matmul_check(2, 3, 0, 7, threads);
  }
}

/* --- Reductions along rows ----------------------------------------------------------------------------------------- */

static void sum_rows(const tfm_row_args *args) {
  for (int64_t j = 0; j < args->columns; j++) {
    float sum = 0;
    for (int64_t i = 0; i < args->rows; i++) sum += *at(args, 1, i, j);
    *at(args, 0, 0, j) = sum;
  }
}

static void check_sums(int64_t batch, int64_t time, int64_t width, int32_t threads) {
  static HandProgram hand;
  hand_open(&hand, "sum");
  tfm_size b = hand_symbol(&hand, "batch"), t = hand_symbol(&hand, "time"), w = hand_symbol(&hand, "width");
  tfm_size t_w = hand_product(&hand, 1, 2, (const uint8_t[]){1, 2});
  hand_input(&hand, "x", TFM_F32, "f32[batch, time, width]", 3, (const tfm_size[]){b, t, w});
  hand_output(&hand, "y", TFM_F32, "f32[batch, width]", 2, (const tfm_size[]){b, w});
  const tfm_operand operands[] = {hand_operand(TFM_SPACE_OUTPUT, 0, TFM_F32, 3, (const tfm_size[]){w, 0, 1}),
                                  hand_operand(TFM_SPACE_INPUT, 0, TFM_F32, 3, (const tfm_size[]){t_w, w, 1})};
  hand.rows[0] = (tfm_row_step){.kernel = hand_kernel(&hand, (void (*)(void))sum_rows), .rank = 3, .reduce = 2,
                                .n_operands = 2, .first_operand = hand_operands(&hand, 2, operands), .dims = {b, t, w}};
  hand_step(&hand, TFM_STEP_ROW, 0, hand_constant(&hand, 1000000));
  hand_close(&hand);
  float *x = floats_new(batch * time * width, 4), *y = floats_new(batch * width, 5);
  const int64_t dims[] = {batch, time, width};
  const tfm_value inputs[] = {{x, TFM_F32, 3, dims}};
  tfm_context *context = context_new(&hand, threads);
  cr_assert_eq(run(context, inputs, y, NULL), TFM_OK);
  for (int64_t i = 0; i < batch * width; i++) {
    float sum = 0;
    for (int64_t r = 0; r < time; r++) sum += x[(i / width * time + r) * width + i % width];
    cr_assert_eq(y[i], sum);
  }
  tfm_context_destroy(context);
  free(x);
  free(y);
}

Test(runtime_steps, reductions_along_rows) {
  for (int32_t threads = 1; threads <= 4; threads++) {
    check_sums(1, 20, 300, threads);
    check_sums(1, 20, 900, threads);
    check_sums(5, 3, 7, threads);
    check_sums(2, 0, 70, threads); /* the sum of nothing is 0 */
    check_sums(0, 2, 7, threads);
  }
}

/* --- Running sums -------------------------------------------------------------------------------------------------- */

/* Row `row` of ones on and below the diagonal times a column of x. */
static float product_with_ones(const float *x, int64_t time, int64_t width, int64_t row) {
  float chains[4] = {0}, sum = 0;
  for (int64_t i = 0; i < time; i++) {
    sum += i <= row ? x[i * width] : 0 * x[i * width];
    if (i + 1 < time && (i + 1) % TFM_SHORT_CHAIN) continue;
    chains[i / TFM_CHAIN] += sum;
    sum = 0;
  }
  return tree(chains, (time + TFM_CHAIN - 1) / TFM_CHAIN, 0, 4);
}

static float cumsum_at(const float *x, int64_t width, int64_t row) {
  float sum = x[0];
  for (int64_t i = 1; i <= row; i++) sum += x[i * width];
  return sum;
}

static void sums_check(uint8_t what, int64_t batch, int64_t time, int64_t width, int64_t every, int32_t threads) {
  static HandProgram hand;
  hand_open(&hand, "sums");
  tfm_size b = hand_symbol(&hand, "batch"), t = hand_symbol(&hand, "time"), w = hand_symbol(&hand, "width");
  tfm_size t_w = hand_product(&hand, 1, 2, (const uint8_t[]){1, 2});
  hand_input(&hand, "x", TFM_F32, "f32[batch, time, width]", 3, (const tfm_size[]){b, t, w});
  hand_output(&hand, "y", TFM_F32, "f32[batch, time, width]", 3, (const tfm_size[]){b, t, w});
  tfm_operand x_operand = hand_operand(TFM_SPACE_INPUT, 0, TFM_F32, 3, (const tfm_size[]){t_w, 1, w});
  hand.alongs[0] = (tfm_along_step){.what = what, .rank = 3, .n = t, .dims = {b, w, t}, .x = x_operand, .y = x_operand,
                                    .c = hand_operand(TFM_SPACE_OUTPUT, 0, TFM_F32, 3, (const tfm_size[]){t_w, 1, w})};
  hand_step(&hand, TFM_STEP_ALONG, 0, hand_constant(&hand, 1000000));
  hand_close(&hand);
  float *x = floats_new(batch * time * width, 7), *y = floats_new(batch * time * width, 8);
  if (time > 20 && width > 5) {
    for (int64_t i = 0; i < time; i++) x[i * width + 1] = -0.0f;
    x[7 * width] = INFINITY;
    x[9 * width + 2] = NAN, x[11 * width + 2] = INFINITY;
    x[4 * width + 3] = x[5 * width + 3] = 3e38f; /* the sum overflows, but no element does */
    x[3 * width + 4] = INFINITY, x[6 * width + 4] = -INFINITY;
  }
  const int64_t dims[] = {batch, time, width};
  const tfm_value inputs[] = {{x, TFM_F32, 3, dims}};
  tfm_context *context = context_new(&hand, threads);
  cr_assert_eq(run(context, inputs, y, NULL), TFM_OK);
  for (int64_t i = 0; i < batch * time * width; i += every) {
    int64_t row = i / width % time;
    const float *column = x + i / (time * width) * time * width + i % width;
    float want = what == TFM_ALONG_CUMSUM ? cumsum_at(column, width, row) : product_with_ones(column, time, width, row);
    bool same = (isnan(want) && isnan(y[i])) || memcmp(&want, &y[i], sizeof want) == 0;
    cr_assert(same, "kind %d, row %lld of %lld, column %lld: %a, not %a", what, (long long)row, (long long)time,
              (long long)(i % width), (double)y[i], (double)want);
  }
  tfm_context_destroy(context);
  free(x);
  free(y);
}

/* A triangle of ones gives the bits of the product, whatever stands in x, and in chains as products are. */
Test(runtime_steps, running_sums_side_by_side) {
  static const uint8_t kinds[] = {TFM_ALONG_CUMSUM, TFM_ALONG_TRIANGLE};
  for (int kind = 0; kind < 2; kind++)
    for (int32_t threads = 1; threads <= 3; threads++) {
      sums_check(kinds[kind], 2, 40, 37, 1, threads);
      sums_check(kinds[kind], 3, 5, 3, 1, threads);
      sums_check(kinds[kind], 1, 0, 20, 1, threads);
      sums_check(kinds[kind], 1, 1, 16, 1, threads);
      sums_check(kinds[kind], 1, TFM_SHORT_CHAIN + 1, 19, 1, threads);
      sums_check(kinds[kind], 1, 3 * TFM_CHAIN - 5, 19, 997, threads);
      sums_check(kinds[kind], 1, 4 * TFM_CHAIN, 17, 997, threads); /* all chains end: see with sanitizers */
    }
}

/* --- Tables -------------------------------------------------------------------------------------------------------- */

static void table_check(uint32_t features, int rotary, int interleaved, int64_t d) {
  static HandProgram hand;
  enum { POSITIONS = 3000 };
  int64_t width = rotary ? d / 2 * 2 : d;
  hand_open(&hand, "table");
  tfm_size n = hand_symbol(&hand, "n"), columns = hand_constant(&hand, width);
  const tfm_size one = 1;
  hand_input(&hand, "positions", TFM_I32, "i32[n]", 1, &n);
  hand_output(&hand, "y", TFM_F32, "f32[n, d]", 2, (const tfm_size[]){n, columns});
  hand.tables[0] = (tfm_table_step){.rotary = (uint8_t)rotary, .interleaved = (uint8_t)interleaved, .rank = 1, .d = d,
                                    .base = 10000, .dims = {n},
                                    .positions = hand_operand(TFM_SPACE_INPUT, 0, TFM_I32, 1, &one),
                                    .c = hand_operand(TFM_SPACE_OUTPUT, 0, TFM_F32, 1, &columns)};
  hand_step(&hand, TFM_STEP_TABLE, 0, hand_constant(&hand, 1000000));
  hand_close(&hand);
  hand.program.features = features;
  /* among them multiples of pi/2 to 9 digits, and angles of more than 2^20 */
  static int32_t positions[POSITIONS] = {0, 1, 5000, 17, -3, 2, 11, 22, 355, -710, 103993, 104348, INT32_MAX, INT32_MIN};
  for (int i = 14; i < POSITIONS; i++) positions[i] = i % 5 ? i : i * 716003;
  const int64_t dims[] = {POSITIONS};
  const tfm_value inputs[] = {{positions, TFM_I32, 1, dims}};
  float *y = floats_new(POSITIONS * width, 6);
  tfm_context *context = context_new(&hand, 2);
  cr_assert_eq(run(context, inputs, y, NULL), TFM_OK);
  for (int64_t i = 0; i < POSITIONS * width; i++) {
    int64_t column = i % width, angles = (d + 1) / 2, half = d / 2;
    bool cosine = rotary ? column < half : interleaved ? column % 2 : column >= angles;
    int64_t pair = rotary ? column % half : interleaved ? column / 2 : column % angles;
    double angle = positions[i / width] * double_exp(-2.0 * (double)pair / (double)d * double_log(10000.0));
    cr_assert_eq(y[i], (float)(cosine ? double_cos(angle) : double_sin(angle)), "%x: d %lld column %lld", features,
                 (long long)d, (long long)column);
  }
  tfm_context_destroy(context);
  free(y);
}

/* As many angles together as the instruction set has lanes, and what is left. */
Test(runtime_steps, tables_of_sines_and_cosines) {
  static const uint32_t features[] = {
#if defined(__x86_64__)
      CPU_AVX2, CPU_AVX2 | CPU_AVX512F | CPU_AVX512DQ | CPU_AVX512VL,
#endif
      0};
  for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
    if (cpu_missing(features[i], cpu_features())) continue;
    for (int interleaved = 0; interleaved < 2; interleaved++) {
      table_check(features[i], 0, interleaved, 10);
      table_check(features[i], 0, interleaved, 7);
      table_check(features[i], 0, interleaved, 32);
      table_check(features[i], 0, interleaved, 47);
    }
    table_check(features[i], 1, 0, 12);
    table_check(features[i], 1, 0, 50);
  }
}

/* --- Ids, gathers, faults ------------------------------------------------------------------------------------------ */

/* y = x / table[ids] along rows; dividing by 0 is a fault. */
static void divide_by_row(const tfm_row_args *args) {
  for (int64_t i = 0; i < args->rows; i++) {
    int32_t id;
    memcpy(&id, at(args, 2, i, 0), sizeof id);
    for (int64_t j = 0; j < args->columns; j++) {
      float divisor = *(float *)(args->operands[3].base + id * args->operands[3].row_stride + j * 4);
      if (divisor == 0) *args->faults = TFM_FAULT_DIVISION;
      *at(args, 0, i, j) = *at(args, 1, i, j) / divisor;
    }
  }
}

static void gather_program(HandProgram *hand) {
  hand_open(hand, "gather");
  tfm_size b = hand_symbol(hand, "batch"), t = hand_symbol(hand, "time"), rows = hand_symbol(hand, "rows");
  tfm_size two = hand_constant(hand, 2), step = hand_product(hand, 2, 1, (const uint8_t[]){1});
  hand_input(hand, "x", TFM_F32, "f32[batch, time, 2]", 3, (const tfm_size[]){b, t, two});
  hand_input(hand, "ids", TFM_I32, "i32[batch, time]", 2, (const tfm_size[]){b, t});
  hand_input(hand, "table", TFM_F32, "f32[rows, 2]", 2, (const tfm_size[]){rows, two});
  hand_output(hand, "y", TFM_F32, "f32[batch, time, 2]", 3, (const tfm_size[]){b, t, two});
  hand->ids[0] = (tfm_ids_step){.rank = 2, .limit = rows, .dims = {b, t}, .place = "gather.tfm:2:2",
                                .ids = hand_operand(TFM_SPACE_INPUT, 1, TFM_I32, 2, (const tfm_size[]){t, 1})};
  hand_step(hand, TFM_STEP_CHECK_IDS, 0, hand_constant(hand, 1000000));
  tfm_operand operands[] = {hand_operand(TFM_SPACE_OUTPUT, 0, TFM_F32, 3, (const tfm_size[]){step, two, 1}),
                            hand_operand(TFM_SPACE_INPUT, 0, TFM_F32, 3, (const tfm_size[]){step, two, 1}),
                            hand_operand(TFM_SPACE_INPUT, 1, TFM_I32, 3, (const tfm_size[]){t, 1, 0}),
                            hand_operand(TFM_SPACE_INPUT, 2, TFM_F32, 3, (const tfm_size[]){0, two, 1})};
  operands[3].gathered = 2;
  hand->rows[0] = (tfm_row_step){.kernel = hand_kernel(hand, (void (*)(void))divide_by_row), .rank = 3, .n_operands = 4,
                                 .first_operand = hand_operands(hand, 4, operands), .dims = {b, t, two}};
  hand_step(hand, TFM_STEP_ROW, 0, hand_constant(hand, 1000000));
  hand_close(hand);
}

Test(runtime_steps, gathers_and_their_faults) {
  static HandProgram hand;
  gather_program(&hand);
  float x[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, table[] = {1, 2, 4, 8, 0, 16}, y[12];
  int32_t ids[6] = {0, 1, 0, 1, 1, 0};
  const int64_t x_dims[] = {2, 3, 2}, ids_dims[] = {2, 3}, table_dims[] = {3, 2};
  const tfm_value inputs[] = {{x, TFM_F32, 3, x_dims}, {ids, TFM_I32, 2, ids_dims}, {table, TFM_F32, 2, table_dims}};
  for (int32_t threads = 1; threads <= 3; threads++) {
    tfm_context *context = context_new(&hand, threads);
    tfm_error error;
    memset(y, 0, sizeof y);
    ids[5] = 3;
    cr_expect_eq(run(context, inputs, y, &error), TFM_E_INPUT);
    cr_expect_str_eq(error.message, "computed id [1,2] = 3, legal range is [0, 3)");
    cr_expect_str_eq(error.place, "gather.tfm:2:2");
    for (int i = 0; i < 12; i++) cr_expect_eq(y[i], 0, "a step ran after the check had failed");
    ids[5] = 2;
    cr_expect_eq(run(context, inputs, y, &error), TFM_E_INPUT);
    cr_expect_eq(error.reason, TFM_REASON_ARITHMETIC);
    cr_expect_str_eq(error.message, "integer division by zero");
    ids[5] = 0;
    cr_expect_eq(run(context, inputs, y, &error), TFM_OK, "%s", error.message);
    for (int i = 0; i < 12; i++) cr_expect_eq(y[i], x[i] / table[ids[i / 2] * 2 + i % 2]);
    tfm_context_destroy(context);
  }
}

/* --- Memory -------------------------------------------------------------------------------------------------------- */

static int n_prepared;

static void count_up(const tfm_row_args *args) {
  n_prepared++;
  for (int64_t i = 0; i < args->rows; i++)
    for (int64_t j = 0; j < args->columns; j++) *at(args, 0, i, j) = (float)(args->coordinates[0] + j);
}

static void add_both(const tfm_row_args *args) {
  for (int64_t i = 0; i < args->rows; i++)
    for (int64_t j = 0; j < args->columns; j++) *at(args, 0, i, j) = *at(args, 1, i, j) + *at(args, 2, i, j);
}

/* y = x + 0 1 2 ..., where the second is prepared. */
static void prepare_program(HandProgram *hand) {
  hand_open(hand, "prepare");
  tfm_size n = hand_symbol(hand, "n");
  hand_input(hand, "x", TFM_F32, "f32[n]", 1, &n);
  hand_output(hand, "y", TFM_F32, "f32[n]", 1, &n);
  hand_buffer(hand, TFM_F32, n, 0, 1);
  hand->buffers[0].persistent = 1;
  const tfm_size strides[] = {0, 1};
  const tfm_operand ramp = hand_operand(TFM_SPACE_BUFFER, 0, TFM_F32, 2, strides);
  const tfm_operand sum[] = {hand_operand(TFM_SPACE_OUTPUT, 0, TFM_F32, 2, strides),
                             hand_operand(TFM_SPACE_INPUT, 0, TFM_F32, 2, strides), ramp};
  hand->rows[0] = (tfm_row_step){.kernel = hand_kernel(hand, (void (*)(void))count_up), .rank = 2, .n_operands = 1,
                                 .first_operand = hand_operands(hand, 1, &ramp), .dims = {1, n}};
  hand->rows[1] = (tfm_row_step){.kernel = hand_kernel(hand, (void (*)(void))add_both), .rank = 2, .n_operands = 3,
                                 .first_operand = hand_operands(hand, 3, sum), .dims = {1, n}};
  hand->steps[hand_step(hand, TFM_STEP_ROW, 0, hand_constant(hand, 10))].prepare = 1;
  hand_step(hand, TFM_STEP_ROW, 1, hand_constant(hand, 10));
  hand_close(hand);
}

Test(runtime_steps, prepare_steps_run_when_sizes_change) {
  static HandProgram hand;
  prepare_program(&hand);
  tfm_context *context = context_new(&hand, 1);
  float x[100], y[100];
  static const int64_t sizes[] = {30, 30, 7, 7, 100, 30, 30};
  static const int expected[] = {1, 1, 2, 2, 3, 4, 4};
  n_prepared = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    hand_fill(x, sizes[i], (uint32_t)i);
    const tfm_value inputs[] = {{x, TFM_F32, 1, &sizes[i]}};
    cr_assert_eq(run(context, inputs, y, NULL), TFM_OK);
    cr_expect_eq(n_prepared, expected[i], "run %zu: prepared %d times", i, n_prepared);
    for (int64_t j = 0; j < sizes[i]; j++) cr_expect_eq(y[j], x[j] + (float)j);
  }
  tfm_context_destroy(context);
}

Test(runtime_steps, buffers_share_memory_when_they_live_apart) {
  static HandProgram hand;
  hand_open(&hand, "memory");
  tfm_size n = hand_symbol(&hand, "n"), four = hand_product(&hand, 4, 1, (const uint8_t[]){0}),
           three = hand_product(&hand, 3, 1, (const uint8_t[]){0});
  hand_input(&hand, "x", TFM_F32, "f32[n]", 1, &n);
  /* As in an encoder layer: x and y live long, qkv and attention, then the hidden units, share a third place. */
  hand_buffer(&hand, TFM_F32, n, 0, 9);
  hand_buffer(&hand, TFM_F32, n, 2, 9);
  hand_buffer(&hand, TFM_F32, three, 0, 1);
  hand_buffer(&hand, TFM_F32, n, 1, 2);
  hand_buffer(&hand, TFM_F32, four, 3, 4);
  hand_close(&hand);
  tfm_context *context = context_new(&hand, 1);
  static const int64_t sizes[] = {1024, 64, 2048};
  static const uint64_t expected[] = {6 * 1024 * 4, 6 * 1024 * 4, 6 * 2048 * 4};
  for (size_t i = 0; i < 3; i++) {
    const tfm_value inputs[] = {{&n_prepared, TFM_F32, 1, &sizes[i]}};
    cr_assert_eq(tfm_context_bind(context, inputs, NULL), TFM_OK);
    cr_expect_eq(tfm_context_workspace_bytes(context), expected[i], "%llu bytes",
                 (unsigned long long)tfm_context_workspace_bytes(context));
  }
  tfm_context_destroy(context);
}

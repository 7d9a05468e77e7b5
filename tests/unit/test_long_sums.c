/* Products of many steps of k: their bits are those of chains of 128 steps, added one after the other, and beyond 16,384
 * steps of such sums added in a tree, on every path and with any number of rows and threads; they stay exact where one
 * chain would not; few steps are one chain. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "codegen/codegen.h"
#include "compiled_model.h"
#include "elaborate_text.h"
#include "passes/passes.h"
#include "tfm/tfm.h"

/* CHAIN and SHORT are part of the definition of the bits: not taken from a header. */
enum { N = 70, COLUMNS = 33, CHAIN = 16384, SHORT = 128 };

static Arena *arena;
static Diag diag;

static void setup(void) {
  arena = arena_create();
  diag = diag_new(arena);
}

static void teardown(void) { arena_destroy(arena); }

TestSuite(long_sums, .init = setup, .fini = teardown);

// ---- numbers ----

typedef float (*Fill)(uint32_t name, int64_t i);

static float mixed(uint32_t name, int64_t i) {
  uint32_t bits = ((uint32_t)i + name * 7919u) * 2654435761u;
  bits ^= bits >> 15;
  return (float)(bits * 2246822519u >> 8) * 0x1p-23f - 0.5f;
}

/* Chains of 16,384 are exact, but at 2^17 each step of a longer one would lose its last bits, and always downwards. */
static float steady(uint32_t name, int64_t i) {
  (void)i;
  return name == 'x' ? 1 : 1 + 0x1p-10f;
}

/* Terms that hardly differ: every addition to a long sum is rounded in the same direction. */
static float term;
static float equal(uint32_t name, int64_t i) {
  (void)i;
  return name == 'x' ? term : 0.7f;
}

static Fill fill;
static int64_t rows_of_w = N;

static const Tensor *find(void *context, const char *name) {
  const int64_t *k = context;
  Tensor *tensor = tensor_new(arena, DTYPE_F32, 2, (const int64_t[]){rows_of_w, *k});
  for (int64_t i = 0; i < rows_of_w * *k; i++) ((float *)tensor->data)[i] = fill((uint32_t)*name, i);
  return tensor;
}

// ---- what is right ----

static float short_chain(const TargetInfo *target, Fill numbers, int64_t x, int64_t y, int64_t y_step,
                         uint32_t y_name, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; i++) {
    float a = numbers('x', x + i), b = numbers(y_name, y + i * y_step);
    if (target->has_fma) {
      sum = fmaf(a, b, sum);
    } else {
      volatile float product = a * b; /* rounded */
      sum += product;
    }
  }
  return sum;
}

static float chain(const TargetInfo *target, Fill numbers, int64_t x, int64_t y, int64_t y_step, uint32_t y_name,
                   int64_t n) {
  float sum = 0;
  for (int64_t first = 0; first < n; first += SHORT) {
    const int64_t steps = n - first < SHORT ? n - first : SHORT;
    const float more = short_chain(target, numbers, x + first, y + first * y_step, y_step, y_name, steps);
    sum = first ? sum + more : more;
  }
  return sum;
}

/* Halves of as many chains on the left as the greatest power of two that leaves some on the right. */
static float tree(const float *chains, int64_t n) {
  int64_t left = 1;
  if (n == 1) return *chains;
  while (2 * left < n) left *= 2;
  return tree(chains, left) + tree(chains + left, n - left);
}

static float right_sum(const TargetInfo *target, int64_t k, int64_t x, int64_t y, int64_t y_step, uint32_t y_name) {
  float chains[64];
  int64_t n = 0;
  for (int64_t first = 0; first < k; first += CHAIN, n++) {
    int64_t steps = k - first < CHAIN ? k - first : CHAIN;
    chains[n] = chain(target, fill, x + first, y + first * y_step, y_step, y_name, steps);
  }
  return tree(chains, n);
}

// ---- runs ----

typedef struct Product { /* a = x wT + 1 of packed weights; b = x y and c = x vT of two activations, x in place in c */
  const TargetInfo *target;
  Compiled compiled;
  int64_t k;
} Product;

static Product product_new(const TargetInfo *target, int64_t k) {
  Product p = {.target = target, .k = k};
  const char *text = arena_printf(arena,
                                  "model M(k = %lld) {\n"
                                  "  weight w: [%d, k]\n"
                                  "  forward(x: f32[rows, k], z: f32[rows, inner], y: f32[inner, columns],\n"
                                  "          v: f32[columns, k]) {\n"
                                  "    return a = linear(x, w) + 1.0, b = z @ y, c = x @ transpose(v, 0, 1)\n"
                                  "  }\n"
                                  "}\n",
                                  (long long)k, N);
  Graph *graph = elaborate_text(arena, &diag, text, &(ElaborateOptions){0});
  cr_assert(graph, "%s", first_message(&diag));
  p.compiled = compiled_forward(arena, &diag, graph, &(PassOptions){.level = 2}, target, find, &p.k);
  return p;
}

static tfm_value matrix(int64_t rows, int64_t columns, uint32_t name) {
  Tensor *tensor = tensor_new(arena, DTYPE_F32, 2, (const int64_t[]){rows, columns});
  for (int64_t i = 0; name && i < rows * columns; i++) ((float *)tensor->data)[i] = fill(name, i);
  return (tfm_value){tensor->data, TFM_F32, 2, tensor->dims};
}

static void run(const Product *p, int64_t rows, int32_t threads, tfm_value outputs[3]) {
  tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  tfm_context *context;
  tfm_error error;
  const tfm_value inputs[] = {matrix(rows, p->k, 'x'), matrix(rows, p->k, 'x'), matrix(p->k, COLUMNS, 'y'),
                              matrix(COLUMNS, p->k, 'v')};
  outputs[0] = matrix(rows, N, 0);
  outputs[1] = matrix(rows, COLUMNS, 0);
  outputs[2] = matrix(rows, COLUMNS, 0);
  cr_assert_eq(tfm_context_create(p->compiled.forward, p->compiled.packed, &options, &context, &error), TFM_OK);
  cr_assert_eq(tfm_context_bind(context, inputs, &error), TFM_OK, "%s", error.message);
  cr_assert_eq(tfm_context_run(context, inputs, outputs, &error), TFM_OK, "%s", error.message);
  tfm_context_destroy(context);
}

static void check_element(const Product *p, const tfm_value outputs[3], int64_t row, int64_t column) {
  float a = ((const float *)outputs[0].data)[row * N + column];
  float want = right_sum(p->target, p->k, row * p->k, column * p->k, 1, 'w') + 1;
  cr_assert_eq(a, want, "%s: linear of %lld: [%lld][%lld] is %a, not %a", p->target->name, (long long)p->k,
               (long long)row, (long long)column, (double)a, (double)want);
  if (column >= COLUMNS) return;
  float b = ((const float *)outputs[1].data)[row * COLUMNS + column];
  want = right_sum(p->target, p->k, row * p->k, column, COLUMNS, 'y');
  cr_assert_eq(b, want, "%s: matmul of %lld: [%lld][%lld] is %a, not %a", p->target->name, (long long)p->k,
               (long long)row, (long long)column, (double)b, (double)want);
  float c = ((const float *)outputs[2].data)[row * COLUMNS + column];
  want = right_sum(p->target, p->k, row * p->k, column * p->k, 1, 'v');
  cr_assert_eq(c, want, "%s: turned matmul of %lld: [%lld][%lld] is %a, not %a", p->target->name, (long long)p->k,
               (long long)row, (long long)column, (double)c, (double)want);
}

static void check_bits(int64_t k) {
  static const int64_t rows[] = {1, 7, 150};
  fill = mixed;
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Product p = product_new(target, k);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
      for (int32_t threads = 1; threads <= 2; threads++) {
        tfm_value outputs[3];
        run(&p, rows[i], threads, outputs);
        for (int64_t place = 0; place < 3; place++)
          check_element(&p, outputs, place * (rows[i] - 1) / 2, place == 2 ? N - 1 : place * (COLUMNS - 1));
      }
    compiled_free(&p.compiled);
  }
}

Test(long_sums, few_steps) { check_bits(3); }
Test(long_sums, a_short_chain_and_its_neighbours) {
  check_bits(SHORT);
  check_bits(SHORT + 3);
  check_bits(2 * SHORT);
  check_bits(3 * SHORT - 1);
}
/* One call of a tile takes all of k there, if nothing is packed in blocks. */
Test(long_sums, a_block_and_a_half) {
  check_bits(700);
  check_bits(768);
  check_bits(769);
}

Test(long_sums, block_by_block) { check_bits(3000); }
Test(long_sums, one_chain) { check_bits(CHAIN); }
Test(long_sums, a_chain_and_one_step) { check_bits(CHAIN + 1); }
Test(long_sums, three_chains) { check_bits(40000); }
Test(long_sums, six_chains) { check_bits(5 * CHAIN + 77); }

Test(long_sums, stay_exact) {
  const int64_t k = 300000;
  const double want = (double)k * (1 + 0x1p-10);
  fill = steady;
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Product p = product_new(target, k);
    tfm_value outputs[3];
    run(&p, 1, 2, outputs);
    for (int64_t i = 0; i < N; i++) cr_assert_float_eq(((float *)outputs[0].data)[i] / want, 1, 1e-5);
    for (int64_t i = 0; i < COLUMNS; i++) cr_assert_float_eq(((float *)outputs[1].data)[i] / want, 1, 1e-5);
    compiled_free(&p.compiled);
  }
}

/* What PyTorch 2.15 loses of such sums of 192 terms and more: 2.6e-6 (AVX2), 5e-6 (AVX-512). One chain of 768 would lose
 * 1e-5, one of 16,384 would lose 2e-4. */
Test(long_sums, equal_terms_keep_their_digits) {
  static const int64_t steps[] = {384, 768, 3072, CHAIN};
  static const float terms[] = {0.1f, 0.7f, 0.9048f, 5.7f, 100.3f};
  fill = equal;
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target) || target->dot_bytes) continue; /* the others' products of f32 are the same code */
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
      Product p = product_new(target, steps[s]);
      for (size_t t = 0; t < sizeof terms / sizeof *terms; t++) {
        const double want = (double)steps[s] * (double)(term = terms[t]) * (double)0.7f;
        tfm_value outputs[3];
        run(&p, 1, 1, outputs);
        const float got[] = {*(float *)outputs[0].data - 1, *(float *)outputs[1].data, *(float *)outputs[2].data};
        for (int i = want < 100; i < 3; i++) /* a has 1 added to it and taken off */
          cr_assert_float_eq(got[i] / want, 1, target->has_fma ? 3.1e-6 : 4e-6, "%s: %c of %lld times %g",
                             target->name, 'a' + i, (long long)steps[s], (double)term);
      }
      compiled_free(&p.compiled);
    }
  }
}

/* A product does not see zeros at the end of k: padding there leaves the bits as they are. */
Test(long_sums, zeros_at_the_end) {
  const int64_t k = 3 * CHAIN + 5, longer = 7 * CHAIN + 9;
  fill = mixed;
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Product p = product_new(target, CHAIN);
    tfm_error error;
    tfm_context *context;
    tfm_context_options options = {.struct_size = sizeof options, .threads = 1};
    cr_assert_eq(tfm_context_create(p.compiled.forward, p.compiled.packed, &options, &context, &error), TFM_OK);
    float got[2][COLUMNS];
    for (int i = 0; i < 2; i++) {
      int64_t inner = i ? longer : k;
      tfm_value inputs[] = {matrix(1, CHAIN, 'x'), matrix(1, inner, 'x'), matrix(inner, COLUMNS, 'y'),
                            matrix(COLUMNS, CHAIN, 'v')};
      memset((float *)inputs[1].data + k, 0, (size_t)(inner - k) * sizeof(float));
      tfm_value outputs[] = {matrix(1, N, 0), matrix(1, COLUMNS, 0), matrix(1, COLUMNS, 0)};
      cr_assert_eq(tfm_context_bind(context, inputs, &error), TFM_OK, "%s", error.message);
      cr_assert_eq(tfm_context_run(context, inputs, outputs, &error), TFM_OK, "%s", error.message);
      memcpy(got[i], outputs[1].data, sizeof got[i]);
    }
    cr_assert_eq(memcmp(got[0], got[1], sizeof got[0]), 0);
    tfm_context_destroy(context);
    compiled_free(&p.compiled);
  }
}

// ---- few columns ----

/* Every way to place the factors: rows in place or transposed, y in place, in narrow panels, as the row of a turned
 * product; static and run-time numbers of columns; one strip of rows and many. */
static Compiled thin_new(const TargetInfo *target, int64_t n, int64_t k) {
  const char *text =
      arena_printf(arena,
                   "model M(n = %lld, k = %lld) {\n"
                   "  weight w: [n, k]\n"
                   "  forward(x: f32[b, rows, k], y: f32[b, k, n], z: f32[b, k, rows], v: f32[b, k, m]) {\n"
                   "    return a = linear(x, w) + 1.0, b = x @ y, c = transpose(z, 1, 2) @ y, d = x @ v\n"
                   "  }\n"
                   "}\n",
                   (long long)n, (long long)k);
  Graph *graph = elaborate_text(arena, &diag, text, &(ElaborateOptions){0});
  cr_assert(graph, "%s", first_message(&diag));
  return compiled_forward(arena, &diag, graph, &(PassOptions){.level = 2}, target, find, &k);
}

static tfm_value box(int64_t a, int64_t b, int64_t c, uint32_t name) {
  Tensor *tensor = tensor_new(arena, DTYPE_F32, 3, (const int64_t[]){a, b, c});
  for (int64_t i = 0; name && i < a * b * c; i++) ((float *)tensor->data)[i] = fill(name, i);
  return (tfm_value){tensor->data, TFM_F32, 3, tensor->dims};
}

/* z holds the numbers of x, transposed. */
static void transpose(const tfm_value *x, const tfm_value *z) {
  const int64_t rows = x->dims[1], k = x->dims[2];
  for (int64_t i = 0; i < x->dims[0] * rows * k; i++)
    ((float *)z->data)[i / (rows * k) * rows * k + i % k * rows + i / k % rows] = ((const float *)x->data)[i];
}

static void check_thin(const TargetInfo *target, const Compiled *compiled, int64_t n, int64_t k, int64_t rows) {
  enum { BATCH = 3 };
  for (int32_t threads = 1; threads <= 3; threads += 2) {
    tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
    tfm_context *context;
    tfm_error error;
    const tfm_value inputs[] = {box(BATCH, rows, k, 'x'), box(BATCH, k, n, 'y'), box(BATCH, k, rows, 0),
                                box(BATCH, k, n, 'y')};
    tfm_value outputs[4];
    transpose(&inputs[0], &inputs[2]);
    for (int i = 0; i < 4; i++) outputs[i] = box(BATCH, rows, n, 0);
    cr_assert_eq(tfm_context_create(compiled->forward, compiled->packed, &options, &context, &error), TFM_OK);
    cr_assert_eq(tfm_context_bind(context, inputs, &error), TFM_OK, "%s", error.message);
    cr_assert_eq(tfm_context_run(context, inputs, outputs, &error), TFM_OK, "%s", error.message);
    tfm_context_destroy(context);
    for (int64_t i = 0; i < BATCH * rows * n; i++) {
      const int64_t item = i / (rows * n), row = i / n % rows, column = i % n, x = (item * rows + row) * k;
      const float product = right_sum(target, k, x, item * k * n + column, n, 'y');
      const float want[] = {right_sum(target, k, x, column * k, 1, 'w') + 1, product, product, product};
      for (int j = 0; j < 4; j++) {
        const float got = ((const float *)outputs[j].data)[i];
        if (got != want[j])
          cr_assert_fail("%s: %c of k %lld, %lld x %lld: [%lld] is %a, not %a", target->name, 'a' + j, (long long)k,
                         (long long)rows, (long long)n, (long long)i, (double)got, (double)want[j]);
      }
    }
  }
}

Test(long_sums, few_columns) {
  static const int64_t columns[] = {1, 2, 3, 8, 16, 17, 48, 64}, steps[] = {1, 3, 130, 600}, rows[] = {0, 1, 3, 8, 70};
  enum {
    N_COLUMNS = sizeof columns / sizeof *columns,
    N_STEPS = sizeof steps / sizeof *steps,
    N_ROWS = sizeof rows / sizeof *rows
  };
  fill = mixed;
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    for (size_t i = 0; i < N_COLUMNS * N_STEPS; i++) {
      const int64_t n = columns[i / N_STEPS], k = steps[i % N_STEPS];
      if (n > 3 && k == 600) continue; /* the same ways as for 64 */
      rows_of_w = n;
      Compiled compiled = thin_new(target, n, k);
      for (size_t r = 0; r < N_ROWS; r++) check_thin(target, &compiled, n, k, rows[r]);
      compiled_free(&compiled);
    }
  }
  rows_of_w = N;
}

// ---- factors in place ----

/* Lines of both factors hold one step of k; of y they are whole panels, which are not packed. k in one block, in
 * several, in chains. */
static void check_lines(const TargetInfo *target, const Compiled *compiled, int64_t k, int32_t threads) {
  enum { BATCH = 2, ROWS = 70, WIDE = 128 };
  tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  tfm_context *context;
  tfm_error error;
  const tfm_value x = box(BATCH, ROWS, k, 'x'), inputs[] = {box(BATCH, k, ROWS, 0), box(BATCH, k, WIDE, 'y')};
  tfm_value output = box(BATCH, ROWS, WIDE, 0);
  transpose(&x, &inputs[0]);
  cr_assert_eq(tfm_context_create(compiled->forward, compiled->packed, &options, &context, &error), TFM_OK);
  cr_assert_eq(tfm_context_bind(context, inputs, &error), TFM_OK, "%s", error.message);
  cr_assert_eq(tfm_context_run(context, inputs, &output, &error), TFM_OK, "%s", error.message);
  tfm_context_destroy(context);
  for (int64_t i = 0; i < BATCH * ROWS * WIDE; i += k < 100 ? 1 : 61) {
    const int64_t item = i / (ROWS * WIDE), row = i / WIDE % ROWS, column = i % WIDE;
    const float want = right_sum(target, k, (item * ROWS + row) * k, item * k * WIDE + column, WIDE, 'y');
    const float got = ((const float *)output.data)[i];
    if (got != want)
      cr_assert_fail("%s: k %lld: [%lld] is %a, not %a", target->name, (long long)k, (long long)i, (double)got,
                     (double)want);
  }
}

Test(long_sums, lines_in_place) {
  static const int64_t steps[] = {1, 3, 600, 2048, 2999, CHAIN + 5};
  fill = mixed;
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Graph *graph = elaborate_text(arena, &diag,
                                  "model M() {\n"
                                  "  forward(z: f32[b, k, 70], y: f32[b, k, 128]) {\n"
                                  "    return c = transpose(z, 1, 2) @ y\n"
                                  "  }\n"
                                  "}\n",
                                  &(ElaborateOptions){0});
    cr_assert(graph, "%s", first_message(&diag));
    Compiled compiled = compiled_forward(arena, &diag, graph, &(PassOptions){.level = 2}, target, NULL, NULL);
    cr_assert(compiled.forward->matmuls[0].x_stays);
    cr_assert_eq(compiled.forward->matmuls[0].y_stays, target->vector_floats == 16); /* elsewhere too many panels */
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
      for (int32_t threads = 1; threads <= 2; threads++) check_lines(target, &compiled, steps[i], threads);
    compiled_free(&compiled);
  }
}

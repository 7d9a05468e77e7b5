/* The runtime on programs made by hand: numbers, the same bits for any number of threads, checks and their messages,
 * sizes of zero, reuse of the workspace. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hand_models.h"

static void *bytes_new(size_t bytes) {
  void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
  cr_assert(memory);
  memset(memory, 0, bytes);
  return memory;
}

static tfm_context *context_new(const HandProgram *hand, const void *weights, int32_t threads) {
  tfm_context *context;
  tfm_error error;
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  cr_assert_eq(tfm_context_create(&hand->program, weights, &options, &context, &error), TFM_OK, "%s", error.message);
  return context;
}

/* --- Linear -------------------------------------------------------------------------------------------------------- */

typedef struct Linear {
  HandProgram hand;
  float *w, *packed, *x, *r;
  int32_t *ids;
  int64_t x_dims[3], r_dims[2], ids_dims[2];
  tfm_value inputs[3];
} Linear;

static Linear *linear_new(int64_t batch, int64_t time) {
  Linear *linear = bytes_new(sizeof *linear);
  hand_linear(&linear->hand);
  linear->w = bytes_new(LINEAR_N * LINEAR_K * sizeof(float));
  linear->packed = bytes_new((size_t)hand_linear_weight_floats() * sizeof(float));
  linear->x = bytes_new((size_t)(batch * time) * LINEAR_K * sizeof(float));
  linear->r = bytes_new((size_t)time * LINEAR_N * sizeof(float));
  linear->ids = bytes_new((size_t)(batch * time) * sizeof(int32_t));
  hand_fill(linear->w, LINEAR_N * LINEAR_K, 1);
  hand_fill(linear->x, batch * time * LINEAR_K, 2);
  hand_fill(linear->r, time * LINEAR_N, 3);
  hand_linear_pack(linear->w, linear->packed);
  memcpy(linear->x_dims, (int64_t[]){batch, time, LINEAR_K}, sizeof linear->x_dims);
  memcpy(linear->r_dims, (int64_t[]){time, LINEAR_N}, sizeof linear->r_dims);
  memcpy(linear->ids_dims, (int64_t[]){batch, time}, sizeof linear->ids_dims);
  linear->inputs[0] = (tfm_value){linear->x, TFM_F32, 3, linear->x_dims};
  linear->inputs[1] = (tfm_value){linear->r, TFM_F32, 2, linear->r_dims};
  linear->inputs[2] = (tfm_value){linear->ids, TFM_I32, 2, linear->ids_dims};
  return linear;
}

static void linear_free(Linear *linear) {
  free(linear->w);
  free(linear->packed);
  free(linear->x);
  free(linear->r);
  free(linear->ids);
  free(linear);
}

static float linear_expected(const Linear *linear, int64_t row, int64_t n) {
  float sum = 0;
  for (int64_t k = 0; k < LINEAR_K; k++) sum += linear->x[row * LINEAR_K + k] * linear->w[n * LINEAR_K + k];
  sum += linear->r[row % linear->x_dims[1] * LINEAR_N + n];
  return sum < 0 ? 0 : sum;
}

static void linear_check(int64_t batch, int64_t time, int32_t threads) {
  Linear *linear = linear_new(batch, time);
  tfm_context *context = context_new(&linear->hand, linear->packed, threads);
  float *y = bytes_new((size_t)(batch * time) * LINEAR_N * sizeof(float));
  const tfm_value outputs[] = {{y, TFM_F32, 3, NULL}};
  tfm_error error;
  cr_assert_eq(tfm_context_bind(context, linear->inputs, &error), TFM_OK, "%s", error.message);
  for (int run = 0; run < 3; run++) {
    memset(y, 0xff, (size_t)(batch * time) * LINEAR_N * sizeof(float));
    cr_assert_eq(tfm_context_run(context, linear->inputs, outputs, &error), TFM_OK, "%s", error.message);
    for (int64_t row = 0; row < batch * time; row++)
      for (int64_t n = 0; n < LINEAR_N; n++)
        cr_assert_eq(y[row * LINEAR_N + n], linear_expected(linear, row, n), "%lld threads %d run %d row %lld column %lld",
                     (long long)time, threads, run, (long long)row, (long long)n);
  }
  tfm_context_destroy(context);
  free(y);
  linear_free(linear);
}

Test(runtime, gemm_gives_the_same_bits_for_any_threads) {
  for (int32_t threads = 1; threads <= 5; threads++) {
    linear_check(1, 1, threads);
    linear_check(3, 9, threads);
    linear_check(2, 301, threads);
  }
}

Test(runtime, nothing_is_computed_for_sizes_of_zero) {
  for (int32_t threads = 1; threads <= 2; threads++) {
    linear_check(0, 5, threads);
    linear_check(5, 0, threads);
    linear_check(0, 0, threads);
  }
}

static void expect_refused(Linear *linear, tfm_context *context, tfm_status status, tfm_reason reason,
                           const char *message) {
  tfm_error error;
  cr_expect_eq(tfm_context_bind(context, linear->inputs, &error), status);
  cr_expect_eq(error.reason, reason, "%s", error.message);
  cr_expect_str_eq(error.message, message);
}

Test(runtime, inputs_are_checked) {
  Linear *linear = linear_new(3, 9);
  tfm_context *context = context_new(&linear->hand, linear->packed, 1);
  linear->inputs[0].dtype = TFM_I32;
  expect_refused(linear, context, TFM_E_INPUT, TFM_REASON_TYPE, "input \"x\" is i32, expected f32[batch, time, 800]");
  linear->inputs[0].dtype = TFM_F32;
  linear->inputs[1].rank = 1;
  expect_refused(linear, context, TFM_E_INPUT, TFM_REASON_SHAPE, "input \"r\" has 1 axis, expected 2: f32[time, 20]");
  linear->inputs[1].rank = 2;
  linear->r_dims[0] = 7;
  expect_refused(linear, context, TFM_E_INPUT, TFM_REASON_SHAPE, "time is 9 in input \"x\" but 7 in input \"r\"");
  linear->r_dims[0] = 9;
  linear->x_dims[2] = 6;
  expect_refused(linear, context, TFM_E_INPUT, TFM_REASON_SHAPE,
                 "input \"x\": axis 2 is 6, expected 800: f32[batch, time, 800]");
  linear->x_dims[2] = LINEAR_K;
  linear->ids[2 * 9 + 7] = 41;
  expect_refused(linear, context, TFM_E_INPUT, TFM_REASON_VALUE, "input \"ids\"[2,7] = 41, legal range is [0, 40)");
  linear->ids[2 * 9 + 7] = 0;
  linear->ids[1] = -1;
  expect_refused(linear, context, TFM_E_INPUT, TFM_REASON_VALUE, "input \"ids\"[0,1] = -1, legal range is [0, 40)");
  linear->ids[1] = 39;
  linear->inputs[0].data = NULL;
  expect_refused(linear, context, TFM_E_USAGE, TFM_REASON_OTHER, "input \"x\" is a null pointer");
  linear->inputs[0].data = linear->x;
  expect_refused(linear, context, TFM_OK, TFM_REASON_OTHER, "");
  tfm_context_destroy(context);
  linear_free(linear);
}

Test(runtime, model_checks_say_what_the_sizes_were) {
  Linear *linear = linear_new(1, 601);
  tfm_context *context = context_new(&linear->hand, linear->packed, 1);
  tfm_error error;
  cr_expect_eq(tfm_context_bind(context, linear->inputs, &error), TFM_E_INPUT);
  cr_expect_str_eq(error.message, "a sequence of 601 is longer than 600");
  cr_expect_str_eq(error.place, "linear.tfm:3:5");
  cr_expect_null(tfm_context_output_dims(context, 0, NULL));
  tfm_context_destroy(context);
  linear_free(linear);
}

Test(runtime, sizes_that_overflow_are_refused) {
  Linear *linear = linear_new(1, 1);
  tfm_context *context = context_new(&linear->hand, linear->packed, 1);
  linear->x_dims[0] = linear->ids_dims[0] = INT64_MAX / 4096;
  linear->x_dims[1] = linear->ids_dims[1] = linear->r_dims[0] = 1;
  tfm_error error;
  cr_expect_eq(tfm_context_bind(context, linear->inputs, &error), TFM_E_INPUT);
  cr_expect_neq(strstr(error.message, "too large"), NULL, "%s", error.message);
  tfm_context_destroy(context);
  linear_free(linear);
}

Test(runtime, a_run_needs_the_sizes_that_were_bound) {
  Linear *linear = linear_new(3, 9);
  tfm_context *context = context_new(&linear->hand, linear->packed, 1);
  float y[3 * 9 * LINEAR_N];
  const tfm_value outputs[] = {{y, TFM_F32, 3, NULL}};
  tfm_error error;
  cr_expect_eq(tfm_context_run(context, linear->inputs, outputs, &error), TFM_E_USAGE);
  cr_assert_eq(tfm_context_bind(context, linear->inputs, &error), TFM_OK);
  linear->x_dims[0] = linear->ids_dims[0] = 2;
  cr_expect_eq(tfm_context_run(context, linear->inputs, outputs, &error), TFM_E_USAGE);
  cr_expect_eq(tfm_context_bind(context, linear->inputs, &error), TFM_OK);
  cr_expect_eq(tfm_context_run(context, linear->inputs, outputs, &error), TFM_OK);
  int32_t rank;
  cr_expect_eq(tfm_context_output_dims(context, 0, &rank)[0], 2);
  cr_expect_eq(rank, 3);
  linear->ids[0] = LINEAR_IDS;
  y[0] = 7;
  cr_expect_eq(tfm_context_run(context, linear->inputs, outputs, &error), TFM_E_INPUT);
  cr_expect_eq(y[0], 7, "outputs are untouched after an error");
  tfm_context_destroy(context);
  linear_free(linear);
}

Test(runtime, an_output_may_be_left_out) {
  Linear *linear = linear_new(3, 9);
  tfm_context *context = context_new(&linear->hand, linear->packed, 2);
  const tfm_value outputs[] = {{NULL, TFM_F32, 3, NULL}};
  tfm_error error;
  cr_assert_eq(tfm_context_bind(context, linear->inputs, &error), TFM_OK);
  cr_expect_eq(tfm_context_run(context, linear->inputs, outputs, &error), TFM_OK);
  tfm_context_destroy(context);
  linear_free(linear);
}

Test(runtime, wrong_arguments_are_refused) {
  HandProgram hand;
  hand_linear(&hand);
  tfm_context *context;
  char *weights = bytes_new(128);
  cr_expect_eq(tfm_context_create(NULL, weights, NULL, &context, NULL), TFM_E_USAGE);
  cr_expect_eq(tfm_context_create(&hand.program, NULL, NULL, &context, NULL), TFM_E_USAGE);
  cr_expect_eq(tfm_context_create(&hand.program, weights + 1, NULL, &context, NULL), TFM_E_USAGE);
  cr_expect_eq(tfm_context_create(&hand.program, weights, &(tfm_context_options){.struct_size = 4}, &context, NULL), TFM_E_USAGE);
  hand.program.version++;
  cr_expect_eq(tfm_context_create(&hand.program, weights, NULL, &context, NULL), TFM_E_ENV);
  cr_expect_eq(tfm_context_bind(NULL, NULL, NULL), TFM_E_USAGE);
  tfm_context_destroy(NULL);
  free(weights);
}

/* --- Attention ----------------------------------------------------------------------------------------------------- */

typedef struct Attention {
  HandProgram hand;
  int causal;
  int64_t batch, time, keys;
  float *q, *k, *v, *y, *weights;
  uint8_t *padding;
} Attention;

static Attention *attention_new(int64_t batch, int64_t time, int64_t keys, int causal) {
  Attention *a = bytes_new(sizeof *a);
  hand_attention(&a->hand, causal);
  a->causal = causal;
  a->batch = batch;
  a->time = time;
  a->keys = keys;
  int64_t q = batch * ATTENTION_HEADS * time * HAND_H, k = batch * ATTENTION_HEADS * keys * HAND_H,
          v = batch * ATTENTION_HEADS * keys * ATTENTION_E;
  a->q = bytes_new((size_t)q * sizeof(float));
  a->k = bytes_new((size_t)k * sizeof(float));
  a->v = bytes_new((size_t)v * sizeof(float));
  a->y = bytes_new((size_t)(batch * ATTENTION_HEADS * time) * ATTENTION_E * sizeof(float));
  a->weights = bytes_new((size_t)(batch * ATTENTION_HEADS * time * keys) * sizeof(float));
  a->padding = bytes_new((size_t)(batch * keys));
  hand_fill(a->q, q, 5);
  hand_fill(a->k, k, 6);
  hand_fill(a->v, v, 7);
  for (int64_t i = 0; i < q; i++) a->q[i] *= 3;
  return a;
}

static void attention_free(Attention *a) {
  free(a->q);
  free(a->k);
  free(a->v);
  free(a->y);
  free(a->weights);
  free(a->padding);
  free(a);
}

static void attention_run(Attention *a, int32_t threads) {
  const int64_t heads = ATTENTION_HEADS, q[] = {a->batch, heads, a->time, HAND_H}, k[] = {a->batch, heads, a->keys, HAND_H},
                v[] = {a->batch, heads, a->keys, ATTENTION_E}, padding[] = {a->batch, a->keys};
  const tfm_value inputs[] = {
      {a->q, TFM_F32, 4, q}, {a->k, TFM_F32, 4, k}, {a->v, TFM_F32, 4, v}, {a->padding, TFM_BOOL, 2, padding}};
  const tfm_value outputs[] = {{a->y, TFM_F32, 4, NULL}, {a->weights, TFM_F32, 4, NULL}};
  tfm_context *context = context_new(&a->hand, NULL, threads);
  tfm_error error;
  cr_assert_eq(tfm_context_bind(context, inputs, &error), TFM_OK, "%s", error.message);
  for (int run = 0; run < 2; run++)
    cr_assert_eq(tfm_context_run(context, inputs, outputs, &error), TFM_OK, "%s", error.message);
  tfm_context_destroy(context);
}

static void expect_near(double got, double wanted, const char *what, int64_t row) {
  cr_assert(fabs(got - wanted) <= 2e-6 + 2e-5 * fabs(wanted), "%s of row %lld: %g, expected %g", what, (long long)row,
            got, wanted);
}

/* Row `row` of all queries, in double, from the definition. */
static void attention_check_row(const Attention *a, int64_t row) {
  int64_t item = row / a->time, t = row % a->time, batch = item / ATTENTION_HEADS;
  double *p = bytes_new(sizeof(double) * (size_t)a->keys), most = -INFINITY, sum = 0;
  for (int64_t s = 0; s < a->keys; s++) {
    double dot = 0;
    for (int64_t h = 0; h < HAND_H; h++)
      dot += (double)a->q[row * HAND_H + h] * (double)a->k[(item * a->keys + s) * HAND_H + h];
    bool masked = a->padding[batch * a->keys + s] || (a->causal && s > t);
    p[s] = masked ? -INFINITY : dot * (double)0.3f;
    most = fmax(most, p[s]);
  }
  for (int64_t s = 0; s < a->keys; s++) sum += p[s] = p[s] == -INFINITY ? 0 : exp(p[s] - most);
  for (int64_t s = 0; s < a->keys; s++) {
    p[s] = sum > 0 ? p[s] / sum : 0;
    expect_near((double)a->weights[row * a->keys + s], p[s], "weight", row);
  }
  for (int64_t e = 0; e < ATTENTION_E; e++) {
    double wanted = 0;
    for (int64_t s = 0; s < a->keys; s++)
      if (p[s] > 0) wanted += p[s] * (double)a->v[(item * a->keys + s) * ATTENTION_E + e];
    expect_near((double)a->y[row * ATTENTION_E + e], wanted, "output", row);
  }
  free(p);
}

static void attention_check(Attention *a) {
  int64_t n = a->batch * ATTENTION_HEADS * a->time;
  size_t bytes = (size_t)n * ATTENTION_E * sizeof(float);
  float *first = bytes_new(bytes);
  for (int32_t threads = 1; threads <= 4; threads++) {
    attention_run(a, threads);
    if (threads == 1) memcpy(first, a->y, bytes);
    cr_assert_arr_eq(first, a->y, bytes, "%d threads give other bits", threads);
  }
  for (int64_t row = 0; row < n; row++) attention_check_row(a, row);
  free(first);
  attention_free(a);
}

Test(runtime, attention) {
  for (int causal = 0; causal <= 1; causal++) {
    attention_check(attention_new(2, 7, 7, causal));
    attention_check(attention_new(1, 1, 1300, 0));
    attention_check(attention_new(1, 70, 1300, causal));
    attention_check(attention_new(9, 5, 513, causal));
    attention_check(attention_new(2, 3, 0, causal));
    attention_check(attention_new(0, 3, 4, causal));
  }
}

Test(runtime, attention_skips_padding) {
  Attention *a = attention_new(3, 9, 1100, 0);
  for (int64_t s = 600; s < 1100; s++) a->padding[s] = 1;
  for (int64_t s = 0; s < 1100; s++) a->padding[1100 + s] = 1;   /* item 1 has no key at all */
  for (int64_t s = 0; s < 512; s++) a->padding[2 * 1100 + s] = 1; /* item 2 lacks the first block */
  for (int64_t s = 700; s < 1100; s++) {
    for (int64_t h = 0; h < HAND_H; h++) a->k[s * HAND_H + h] = NAN;
    for (int64_t e = 0; e < ATTENTION_E; e++) a->v[s * ATTENTION_E + e] = NAN;
  }
  attention_check(a);
}

Test(runtime, a_weight_of_zero_hides_what_is_not_finite) {
  Attention *a = attention_new(1, 9, 30, 0);
  a->padding[3] = 1;
  a->v[3 * ATTENTION_E] = NAN;
  a->v[(30 + 3) * ATTENTION_E] = INFINITY;
  attention_check(a);
}

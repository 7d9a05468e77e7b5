/* The kernels around attention: softmax by blocks, packing, the test for finite numbers. */
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include "../support/kernel_bench.h"
#include "tfm/abi/half.h"

enum { ROWS = 7, MOST = 1200 };

static const char *const names[] = {"x86-64", "x86-64-v3", "x86-64-v4"};

static KernelBench compile(const char *target, KernelSpec spec) {
  KernelBench bench = kernel_bench_new(target);
  kernel_add(&bench, spec);
  kernels_compile(&bench);
  return bench;
}

// ---- softmax ----

typedef struct State {
  float maximum[ROWS], sum[ROWS], out[ROWS][MOST];
} State;

/* All blocks of n keys, as the runtime does it: what was written before is scaled. */
static void softmax(const KernelBench *bench, const float (*x)[MOST], int64_t n, State *s) {
  static _Alignas(64) float strip[ROWS * TFM_STRIP_STRIDE];
  float scale[ROWS];
  for (int r = 0; r < ROWS; r++) s->maximum[r] = -INFINITY, s->sum[r] = 0;
  for (int64_t begin = 0; begin < n; begin += TFM_KEY_BLOCK) {
    int64_t columns = n - begin < TFM_KEY_BLOCK ? n - begin : TFM_KEY_BLOCK;
    for (int i = 0; i < ROWS * TFM_STRIP_STRIDE; i++) strip[i] = 1e30f;
    for (int r = 0; r < ROWS; r++) memcpy(&strip[r * TFM_STRIP_STRIDE], &x[r][begin], (size_t)columns * 4);
    ((tfm_softmax_kernel)(uintptr_t)kernel_get(bench, 0))(strip, ROWS, columns, s->maximum, s->sum, scale);
    for (int r = 0; r < ROWS; r++) {
      for (int64_t c = 0; c < begin; c++) s->out[r][c] *= scale[r];
      for (int64_t c = 0; c < columns; c++) s->out[r][begin + c] = strip[r * TFM_STRIP_STRIDE + c];
      for (int64_t c = columns; c % 16; c++) cr_assert(strip[r * TFM_STRIP_STRIDE + c] == 0, "no zero at %d", (int)c);
      cr_assert(strip[r * TFM_STRIP_STRIDE + (columns + 15) / 16 * 16] == 1e30f, "written beyond the vector");
    }
  }
  for (int r = 0; r < ROWS; r++)
    for (int64_t c = 0; c < n; c++) s->out[r][c] *= s->sum[r] == 0 ? 0 : 1 / s->sum[r];
}

static void check_row(const char *name, const float *x, const float *y, int64_t n) {
  double most = -INFINITY, sum = 0;
  bool none = false;
  for (int64_t i = 0; i < n; i++) {
    none |= isnan(x[i]) || x[i] == INFINITY;
    if (x[i] > most) most = x[i];
  }
  for (int64_t i = 0; i < n; i++) sum += most == -INFINITY ? 0 : exp(x[i] - most);
  for (int64_t i = 0; i < n; i++) {
    double want = most == -INFINITY ? 0 : exp(x[i] - most) / sum;
    if (none) cr_assert(isnan(y[i]), "%s: %g at %d of %d is no NaN", name, (double)y[i], (int)i, (int)n);
    else cr_assert(fabs((double)y[i] - want) <= 5e-6 * want + 1e-37, "%s: %g, not %g", name, (double)y[i], want);
    if (!none && x[i] == -INFINITY) cr_assert(y[i] == 0);
  }
}

static void fill(float (*x)[MOST], int64_t n, uint64_t *seed) {
  for (int r = 0; r < ROWS; r++)
    for (int64_t c = 0; c < n; c++) x[r][c] = random_float(seed) * 30;
  for (int64_t c = 0; c < n; c++) x[1][c] = -INFINITY;
  for (int64_t c = 0; c < n; c++) x[2][c] = -1e10f;
  for (int64_t c = 0; c < n && c < 512; c++) x[3][c] = -INFINITY; /* the first block masked */
  x[4][n / 2] = NAN;
  x[5][n - 1] = INFINITY;
}

Test(softmax, blocks) {
  static const int64_t lengths[] = {1, 15, 16, 17, 64, 65, 512, 513, 1200};
  static float x[ROWS][MOST];
  static State s, first;
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    uint64_t seed = 11;
    bool has_first = false;
    fill(x, lengths[i], &seed);
    for (int t = 0; t < 3; t++) {
      if (!host_runs(names[t])) continue;
      KernelBench bench = compile(names[t], (KernelSpec){.family = KERNEL_SOFTMAX});
      softmax(&bench, (const float(*)[MOST])x, lengths[i], &s);
      for (int r = 0; r < ROWS; r++) check_row(names[t], x[r], s.out[r], lengths[i]);
      kernel_bench_free(&bench);
      for (int r = 0; r < ROWS && has_first; r++) /* AVX-512 has the bits of AVX2 */
        for (int64_t c = 0; c < lengths[i]; c++) cr_assert(same_float(s.out[r][c], first.out[r][c]));
      if (t == 1) first = s, has_first = true;
    }
  }
}

/* Masked keys after a row, and masked blocks after that, change no bit. */
Test(softmax, right_padding) {
  static float x[ROWS][MOST], padded[ROWS][MOST];
  static State s, p;
  for (int t = 0; t < 3; t++) {
    if (!host_runs(names[t])) continue;
    KernelBench bench = compile(names[t], (KernelSpec){.family = KERNEL_SOFTMAX});
    uint64_t seed = 12;
    fill(x, 300, &seed);
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < MOST; c++) padded[r][c] = c < 300 ? x[r][c] : -INFINITY;
    softmax(&bench, (const float(*)[MOST])x, 300, &s);
    softmax(&bench, (const float(*)[MOST])padded, MOST, &p);
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < 300; c++) cr_assert(same_float(s.out[r][c], p.out[r][c]), "%s [%d][%d]", names[t], r, c);
    kernel_bench_free(&bench);
  }
}

// ---- packing ----

/* Numbers of 16 bits are most that there are: subnormal ones, infinities and NaN too. */
static float number_in(uint8_t form, int64_t i) {
  return form == TFM_FORM_BF16 ? bf16_to_f32((uint16_t)i) : form == TFM_FORM_F16 ? f16_to_f32((uint16_t)i) : (float)i;
}

/* As in a step of training, where subnormal f32 count as 0. */
static void run_pack(const KernelBench *bench, const void *source, const int64_t strides[2], int64_t k, int64_t columns,
                     float *packed) {
#ifdef __SSE__
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | 0x8040);
#endif
  ((tfm_pack_kernel)(uintptr_t)kernel_get(bench, 0))(source, strides[0], strides[1], k, columns, packed);
#ifdef __SSE__
  _mm_setcsr(mode);
#endif
}

static void check_pack(const KernelBench *bench, int64_t width, int64_t k_stride, int64_t column_stride, int64_t k,
                       int64_t columns) {
  static float source[200 * 200], packed[200 * 64 + 1];
  static uint16_t halves[200 * 200];
  const uint8_t form = bench->plan.kernels.items[0].spec.b_form;
  for (int i = 0; i < 200 * 200; i++) source[i] = (float)i, halves[i] = (uint16_t)i;
  for (int i = 0; i < 200 * 64 + 1; i++) packed[i] = -1;
  run_pack(bench, form == TFM_FORM_F32 ? (const void *)source : halves, (const int64_t[]){k_stride, column_stride}, k,
           columns, packed);
  for (int64_t i = 0; i < k; i++)
    for (int64_t j = 0; j < width; j++) {
      float want = j < columns ? number_in(form, i * k_stride + j * column_stride) : 0;
      cr_assert(same_float(packed[i * width + j], want),
                "%s width %d k %d columns %d strides %d %d [%d][%d]: %g, not %g",
                bench->plan.target->name, (int)width, (int)k, (int)columns, (int)k_stride, (int)column_stride, (int)i,
                (int)j, (double)packed[i * width + j], (double)want);
    }
  cr_assert(packed[k * width] == -1, "written beyond the panel");
}

static void check_packs(uint8_t form) {
  static const int64_t lengths[] = {1, 4, 7, 16, 33, 64, 100};
  for (int t = 0; t < 3; t++)
    for (int width = 16; width <= 64; width += form == TFM_FORM_F32 ? 16 : 48)
      for (int transposes = 0; transposes < 2; transposes++) {
        if (!host_runs(names[t])) continue;
        KernelSpec spec = {
            .family = KERNEL_PACK, .width = (uint8_t)width, .b_form = form, .pack_transposes = transposes};
        KernelBench bench = compile(names[t], spec);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
          for (int columns = 1; columns <= width; columns += columns < width - 1 && columns > 5 ? 7 : 1) {
            if (columns > width) break;
            if (transposes) check_pack(&bench, width, 1, 201, lengths[i], columns);
            if (!transposes) check_pack(&bench, width, 200, 1, lengths[i], columns);
            if (!transposes) check_pack(&bench, width, 199, 3, lengths[i], columns);
          }
        if (!transposes) check_pack(&bench, width, 131, 1, 100, width);
        if (transposes) check_pack(&bench, width, 1, 101, 100, width);
        kernel_bench_free(&bench);
      }
}

Test(softmax, pack) {
  check_packs(TFM_FORM_F32);
  check_packs(TFM_FORM_BF16);
  check_packs(TFM_FORM_F16);
}

// ---- finite ----

Test(softmax, finite) {
  static float x[5][70];
  for (int t = 0; t < 3; t++) {
    if (!host_runs(names[t])) continue;
    KernelBench bench = compile(names[t], (KernelSpec){.family = KERNEL_FINITE});
    tfm_finite_kernel finite = (tfm_finite_kernel)(uintptr_t)kernel_get(&bench, 0);
    for (int i = 0; i < 5 * 70; i++) x[i / 70][i % 70] = i % 2 ? 3.4e38f : -3.4e38f;
    cr_assert(finite(&x[0][0], 70, 5, 67) == 1);
    cr_assert(finite(&x[0][0], 70, 0, 67) == 1);
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3 * 5 * 70; i++) {
      int r = i / 3 / 70, c = i / 3 % 70;
      float keep = x[r][c];
      x[r][c] = bad[i % 3];
      cr_assert(finite(&x[0][0], 70, 5, 67) == (c >= 67), "%s %d %d", names[t], r, c);
      x[r][c] = keep;
    }
    kernel_bench_free(&bench);
  }
}

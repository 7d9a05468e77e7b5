/* Tiles of forms whose numbers are in groups, with rows of f32 or of 8 bits, against their definitions in plain C: equal
 * bits, for all rows, lengths and tails, in one call and in two. int4 is in test_tile.c. */
#include "../support/kernel_bench.h"
#include "forms/form.h"
#include "forms/whole_rows.h"
#include "tfm/abi/form_mxfp4a8.h"
#include "tfm/abi/form_q4.h"

enum { MOST_ROWS = 16, MOST_WIDTH = 64, MOST_K = 384, PAD = 5, LENGTHS = 4, PANELS = 3,
       MOST_FLOATS = TFM_ROW_HEAD + MOST_K + MOST_K / TFM_GROUP * 2 + 16 };
static const int64_t lengths[LENGTHS] = {32, 128, 160, 384};
static const uint32_t panels[PANELS] = {48, 64, 32};

typedef struct Groups {
  unsigned form;
  int64_t k;
  uint8_t bytes; /* of a number of a row */
  bool in_pairs;
  float x[MOST_ROWS][MOST_K], w[MOST_WIDTH][MOST_K];
  float rows[MOST_ROWS * MOST_FLOATS] __attribute__((aligned(64)));
  char panel[MOST_K * MOST_WIDTH] __attribute__((aligned(64)));
} Groups;

static bool is_mixed(const Groups *g) { return tfm_form_is_mixed(g->form); }

/* Rows of f32 are read where they are. */
static void fill_rows(Groups *g, tfm_quantize_kernel quantize) {
  uint64_t seed = 3;
  for (int i = 0; i < MOST_ROWS; i++)
    for (int64_t at = 0; at < g->k; at++) g->x[i][at] = random_float(&seed) * (at % 37 == 5 ? 50.0f : 1.0f);
  for (int64_t at = 0; at < TFM_GROUP && is_mixed(g); at++) {
    g->x[1][at] = 0;
    g->x[2][at] *= 0x1p-120f;
    g->x[3][at] = at % 2 ? 1.0f : -1.0f;
  }
  if (is_mixed(g)) g->x[4][g->k - 1] = INFINITY, g->x[5][0] = NAN;
  memset(g->rows, 1, sizeof g->rows);
  float work[MOST_K + 16] __attribute__((aligned(64)));
  if (quantize)
    quantize(g->x[0], sizeof g->x[0], MOST_ROWS, work, g->rows + TFM_ROW_HEAD, MOST_FLOATS * sizeof(float));
  for (int i = 0; i < MOST_ROWS && !quantize; i++)
    memcpy(g->rows + i * MOST_FLOATS + TFM_ROW_HEAD, g->x[i], (size_t)g->k * sizeof(float));
}

/* What is packed, and what that stands for; the first columns have the greatest numbers there are. */
static void fill_panel(Groups *g, int64_t width) {
  uint64_t seed = 8;
  void *work = malloc(form_work_bytes(g->k));
  memset(g->panel, 0, sizeof g->panel);
  for (int64_t c = 0; c < width; c++) {
    for (int64_t at = 0; at < g->k; at++) {
      const float number = random_float(&seed) * 0.7f;
      g->w[c][at] = c == 0 ? -6 : c == 1 ? (at % 2 ? 6.0f : -6.0f) : c == 2 && at < TFM_GROUP ? 0 : number;
    }
    FormPart part = {.panel = g->panel, .width = width, .all_k = g->k, .lane = c, .columns = 1, .k = g->k,
                     .data = g->w[c], .row_stride = g->k, .k_stride = 1, .work = work};
    form_table[g->form].pack(&part);
    form_table[g->form].round(g->w[c], g->k, work);
  }
  free(work);
}

static float product(bool fma, float x, float y, float sum) {
  volatile float exact = x * y;
  return fma ? fmaf(x, y, sum) : sum + exact;
}

/* A chain of each TFM_SHORT_CHAIN steps; of MXFP4 its numbers, of 4 bits, are added up before their power. */
static float float_result(const Groups *g, bool fma, int i, int j) {
  float sum = 0;
  for (int64_t at = 0; at < g->k; at += TFM_SHORT_CHAIN) {
    float chain = 0;
    for (int64_t group = at; group < at + TFM_SHORT_CHAIN && group < g->k; group += TFM_MXFP4_CHAIN) {
      float part = 0;
      const float *w = g->w[j] + group;
      const float power = ldexpf(1, mxfp4_power(g->w[j] + group - group % TFM_GROUP) - TFM_MXFP4_BIAS);
      for (int64_t k = 0; k < TFM_MXFP4_CHAIN; k++)
        if (g->form == TFM_FORM_MXFP4) part = product(fma, g->x[i][group + k], w[k] / power, part);
        else chain = product(fma, g->x[i][group + k], w[k], chain);
      if (g->form == TFM_FORM_MXFP4) chain = product(fma, part, power, chain);
    }
    sum = at ? sum + chain : chain;
  }
  return sum;
}

/* The same with and without FMA. */
static float mixed_result(const Groups *g, bool fma, int i, int j) {
  (void)fma;
  float result = 0;
  for (int64_t at = 0; at < g->k; at += TFM_GROUP) {
    int8_t x[TFM_GROUP], w[TFM_GROUP];
    int32_t sum = 0;
    const float scale = form_mixed_group(g->x[i] + at, x), factor = form_mixed_numbers(g->form, g->w[j], at, w);
    for (int k = 0; k < TFM_GROUP; k++) sum += x[k] * w[k];
    result = product(false, (float)sum * scale, factor, result);
  }
  return result;
}

/* In one call, or in two that cut k between chains. */
static void check_tile(KernelBench *bench, const Groups *g, size_t tile, int rows, int width) {
  static float c[MOST_ROWS * (MOST_WIDTH + PAD)];
  const int64_t stride = width + PAD, first = g->k / (2 * TFM_SHORT_CHAIN) * TFM_SHORT_CHAIN;
  const char *a = (const char *)(g->rows + TFM_ROW_HEAD);
  const bool fma = bench->plan.target->has_fma;
  tfm_tile_kernel kernel = (tfm_tile_kernel)(uintptr_t)kernel_get(bench, tile);
  for (int cut = 0; cut <= (first > 0); cut++) {
    const int columns = cut ? width - 3 : width;
    memset(c, 0, sizeof c);
    if (cut) kernel((const float *)a, g->panel, c, stride, first, TFM_MORE_FOLLOW * is_mixed(g), columns, a, 2);
    kernel((const float *)(a + (cut ? tfm_row_bytes((uint8_t)g->form, g->bytes, first) : 0)),
           g->panel + (cut ? tfm_form_bytes(g->form, first) * width : 0), c, stride, g->k - (cut ? first : 0), cut,
           columns, a, 9);
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < stride; j++) {
        const float wanted = j >= columns ? 0 : (is_mixed(g) ? mixed_result : float_result)(g, fma, i, j);
        const float got = c[i * stride + j];
        cr_assert(same_float(got, wanted) || (isnan(got) && isnan(wanted)), "%s %s %dx%d k %d cut %d [%d][%d]: %a, not %a",
                  bench->plan.target->name, tfm_form_name(g->form), rows, width, (int)g->k, cut, i, j, (double)got,
                  (double)wanted);
      }
  }
}

static bool has_length(unsigned form, int length) { return tfm_form_of_row(form, lengths[length]) == form; }

static void check_form(const char *name, unsigned form) {
  if (!host_runs(name)) return;
  KernelBench bench = kernel_bench_new(name);
  const TargetInfo *target = bench.plan.target;
  static Groups g;
  g.form = form;
  g.in_pairs = target->dot_pairs != NULL;
  g.bytes = !is_mixed(&g) ? sizeof(float) : target->dot_bytes || g.in_pairs ? 1 : 2;
  size_t quantize[LENGTHS], tiles[PANELS][MOST_ROWS + 1];
  TileShape shapes[PANELS];
  for (int l = 0; l < LENGTHS && is_mixed(&g); l++)
    quantize[l] = kernel_add(&bench, (KernelSpec){.family = KERNEL_QUANTIZE, .k = lengths[l], .is_mixed = true,
                                                  .in_pairs = g.in_pairs});
  for (int i = 0; i < PANELS; i++) {
    const bool is_made = tfm_form_has_words(form) && !is_mixed(&g);
    shapes[i] = (is_mixed(&g) ? target_mixed_tile : is_made ? target_tall_tile : target_panel_tile)(target, panels[i]);
    if (!is_made) shapes[i].rows /= 2;
    for (int rows = 1; rows <= shapes[i].rows; rows++) { /* a part of them: each takes its time to compile */
      tiles[i][rows] = SIZE_MAX;
      if (rows < shapes[i].rows && (rows + (int)form) % 3) continue;
      KernelSpec spec = {.family = KERNEL_TILE, .rows = (uint8_t)rows, .width = shapes[i].width, .b_form = (uint8_t)form,
                         .a_stride = MOST_FLOATS, .b_stride = shapes[i].width, .in_pairs = is_mixed(&g) && g.in_pairs};
      spec.chain = is_mixed(&g) ? 0 : TFM_SHORT_CHAIN;
      tiles[i][rows] = kernel_add(&bench, spec);
    }
  }
  kernels_compile(&bench);
  for (int l = 0; l < LENGTHS; l++) {
    if (!has_length(form, l)) continue;
    g.k = lengths[l];
    fill_rows(&g, is_mixed(&g) ? (tfm_quantize_kernel)(uintptr_t)kernel_get(&bench, quantize[l]) : NULL);
    for (int i = 0; i < PANELS; i++) {
      fill_panel(&g, shapes[i].width);
      for (int rows = 1; rows <= shapes[i].rows; rows++)
        if (tiles[i][rows] < SIZE_MAX) check_tile(&bench, &g, tiles[i][rows], rows, shapes[i].width);
    }
  }
  kernel_bench_free(&bench);
}

Test(tile_groups, rows_of_f32) {
  for (const TargetInfo *target = targets; target->name; target++)
    for (unsigned form = 0; form < TFM_N_FORMS; form++)
      if (tfm_form_has_groups(form) && !tfm_form_has_whole_rows(form)) check_form(target->name, form);
}

Test(tile_groups, rows_of_8_bits) {
  for (const TargetInfo *target = targets; target->name; target++)
    for (unsigned form = 0; form < TFM_N_FORMS; form++)
      if (tfm_form_is_mixed(form)) check_form(target->name, form);
}

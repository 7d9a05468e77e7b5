/* Rows that ids choose: looked up in a table that is kept as the panels of a product, in fewer bits; or added to rows.
 *
 * In: ids that were checked, the table; rows. Out: a row in f32, as the form defines it; sums. Refuses nothing. */
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "steps/lines.h"

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

void look_up_row(const Line *line, const tfm_along_step *along) {
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
void scatter_rows(const Walker *walker, const tfm_along_step *along, const Line *line) {
  const int64_t columns = value_of(walker->context, along->dims[0]), blocks = ceil_div(columns, BESIDE);
  const int64_t first = blocks * walker->thread / walker->threads * BESIDE;
  const int64_t n = least_of(columns, blocks * (walker->thread + 1) / walker->threads * BESIDE) - first;
  char *c = line->c + first * (int64_t)sizeof(float);
  const char *x = line->x + first * (int64_t)sizeof(float);
  if (n <= 0) return;
  const bool begins = along->accumulate == TFM_ACCUMULATE_ANEW ||
                      (along->accumulate == TFM_ACCUMULATE_GOES_ON && !walker->context->run.goes_on);
  for (int64_t row = 0; begins && row < line->count; row++)
    memset(c + row * line->c_stride, 0, (size_t)n * sizeof(float));
  for (int64_t i = 0; i < line->n; i++) {
    float *restrict to = (float *)(void *)(c + i32_at(line->y + i * line->y_stride) * line->c_stride);
    const float *restrict from = (const float *)(const void *)(x + i * line->x_stride);
    for (int64_t j = 0; j < n; j++) to[j] += from[j];
  }
}

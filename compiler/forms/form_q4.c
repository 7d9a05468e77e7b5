/* Q4: groups of 32, 64 or 128 numbers as whole numbers of 4 bits less a zero point, times a scale, rounded.
 * tfm/abi/form_q4.h draws a panel.
 *
 * In: rows that are finite and below 2^100, of whole groups. Out: a panel, or what it stands for. A group that is a
 * scale of at most 11 bits times whole numbers, rounded to the bits of f16, of bf16 or not, becomes what it was to the
 * bit: its least number, but for 0, is one of 1 to 16 times the scale, so the scale is found by trying these. Of other
 * groups the number of greatest magnitude, the first of such, is 8 times the scale, which is rounded to 11 bits; each
 * number is the nearest of the 16 from there on, rounded to 11 bits; a group whose scale would be below 2^-100 is 0.
 * Refuses nothing. See form.h. */
#include "tfm/abi/form_q4.h"

#include <math.h>

#include "forms/form.h"
#include "forms/whole_rows.h"

enum { MOST_GROUP = 128, MOST_CODE = 15, MOST_STEPS = 16, GREATEST = 8, SCALE_LEAVES = TFM_Q4_F16 };

typedef struct Range {
  int least, most;
} Range;

static float least_of(const float *x, int n) {
  float least = INFINITY;
  for (int i = 0; i < n; i++)
    if (x[i] != 0 && fabsf(x[i]) < least) least = fabsf(x[i]);
  return least;
}

static float greatest_of(const float *x, int n) {
  float greatest = x[0];
  for (int i = 1; i < n; i++)
    if (fabsf(x[i]) > fabsf(greatest)) greatest = x[i];
  return greatest;
}

/* Whether all are whole numbers, of 16 neighbours, times the scale. */
static bool fits(const float *x, int n, float scale, unsigned r, Range *range) {
  *range = (Range){MOST_STEPS, -MOST_STEPS};
  for (int i = 0; i < n; i++) {
    const float steps = rintf(x[i] / scale);
    if (!(fabsf(steps) <= MOST_STEPS) || tfm_q4_rounded(steps * scale, r) != x[i]) return false;
    if (steps < (float)range->least) range->least = (int)steps;
    if (steps > (float)range->most) range->most = (int)steps;
    if (range->most - range->least > MOST_CODE) return false;
  }
  return true;
}

static uint32_t word_of(float scale, unsigned r, int zero) {
  uint32_t bits;
  memcpy(&bits, &scale, sizeof bits);
  return (bits & TFM_Q4_SCALE) | r << TFM_Q4_SHIFT | (uint32_t)(TFM_Q4_ZERO - zero);
}

/* The scale whose `steps` fold is the least number, or a neighbour of it among numbers of as many bits. */
static bool find_scale(const float *x, int n, float least, int steps, unsigned r, uint32_t *word) {
  const unsigned leaves = r < SCALE_LEAVES ? SCALE_LEAVES : r;
  const float nearest = tfm_q4_rounded(least / (float)steps, leaves);
  for (int apart = -1; apart <= 1; apart++) {
    uint32_t bits;
    Range range;
    memcpy(&bits, &nearest, sizeof bits);
    const float scale = tfm_q4_of_bits(((bits >> leaves) + (uint32_t)apart) << leaves);
    if (!(scale > 0) || tfm_q4_rounded((float)steps * scale, r) != least || !fits(x, n, scale, r, &range)) continue;
    const bool is_usual = range.least >= -GREATEST && range.most < GREATEST;
    *word = word_of(scale, r, is_usual ? GREATEST : range.least < -GREATEST ? -range.least : MOST_CODE - range.most);
    return true;
  }
  return false;
}

static bool find_word(const float *x, int n, uint32_t *word) {
  static const uint8_t roundings[] = {TFM_Q4_F16, TFM_Q4_BF16, TFM_Q4_EXACT};
  const float least = least_of(x, n);
  if (isinf(least)) {
    *word = word_of(0, TFM_Q4_F16, 0);
    return true;
  }
  for (int i = 0; i < 3; i++)
    for (int steps = 1; steps <= MOST_STEPS; steps++)
      if (find_scale(x, n, least, steps, roundings[i], word)) return true;
  return false;
}

/* The word of a group, and its numbers. */
static uint32_t round_group(const float *x, int n, uint8_t *q) {
  uint32_t word;
  if (!find_word(x, n, &word)) {
    const float greatest = greatest_of(x, n), scale = tfm_q4_rounded(fabsf(greatest) / GREATEST, SCALE_LEAVES);
    word = word_of(scale < WHOLE_LEAST ? 0 : scale, SCALE_LEAVES, greatest < 0 ? GREATEST : MOST_CODE - GREATEST);
  }
  const float scale = tfm_q4_of_bits(word & TFM_Q4_SCALE);
  const int zero = TFM_Q4_ZERO - (int)(word & TFM_Q4_ZEROS);
  for (int i = 0; i < n; i++) {
    const float code = scale > 0 ? rintf(x[i] / scale) + (float)zero : (float)zero;
    q[i] = (uint8_t)(code < 0 ? 0 : code > MOST_CODE ? MOST_CODE : code);
  }
  return word;
}

static void pack(unsigned form, const FormPart *part) {
  const int group = tfm_form_row_of(form)->group;
  for (int64_t c = 0; c < part->columns; c++) {
    const float *row = form_row_of(part, c);
    for (int64_t i = 0; i < part->all_k; i += group) {
      uint8_t q[MOST_GROUP];
      const uint32_t word = round_group(row + i, group, q);
      char *block = part->panel + tfm_q4_block(form, part->width, part->lane + c, i);
      memcpy(block, &word, sizeof word);
      for (int j = 0; j < group; j += j % 4 == 3 ? 5 : 1)
        block[tfm_q4_in_block(part->width, j)] = (char)(uint8_t)(q[j] | q[j + 4] << 4);
    }
  }
}

static void round_row(unsigned form, float *row, int64_t k) {
  const int group = tfm_form_row_of(form)->group;
  for (int64_t i = 0; i + group <= k; i += group) {
    uint8_t q[MOST_GROUP];
    const uint32_t word = round_group(row + i, group, q);
    for (int j = 0; j < group; j++) row[i + j] = tfm_q4_number(word, q[j]);
  }
}

float q4_steps(unsigned form, const float *row, int64_t at, int8_t *steps) {
  const int group = tfm_form_row_of(form)->group;
  uint8_t q[MOST_GROUP];
  const uint32_t word = round_group(row + at - at % group, group, q);
  for (int i = 0; i < TFM_GROUP; i++)
    steps[i] = (int8_t)(q[at % group + i] + (int)(word & TFM_Q4_ZEROS) - TFM_Q4_ZERO);
  return tfm_q4_of_bits(word & TFM_Q4_SCALE);
}

#define Q4(ENUM, name)                                                            \
  void form_pack_##name(const FormPart *part) { pack(TFM_FORM_##ENUM, part); }    \
  void form_round_##name(float *row, int64_t k, void *work) {                     \
    (void)work;                                                                   \
    round_row(TFM_FORM_##ENUM, row, k);                                           \
  }
Q4(Q4G32, q4g32)
Q4(Q4G64, q4g64)
Q4(Q4G128, q4g128)
Q4(Q4G32A8, q4g32a8)
Q4(Q4G64A8, q4g64a8)
Q4(Q4G128A8, q4g128a8)
#undef Q4

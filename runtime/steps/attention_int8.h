/* Whole attention: the functions of attention in whole numbers, which the program points to. See attention_int8.c. */
#ifndef TFM_RUNTIME_ATTENTION_INT8_H
#define TFM_RUNTIME_ATTENTION_INT8_H

#include "steps/step_attention.h"

/* Rows of a strip. In whole numbers tiles are done so soon that what is done once for a strip would take as long: two
 * tiles make one. */
static inline int64_t whole_strip_rows(const tfm_attention_step *step) {
  const bool twice = step->form == TFM_FORM_INT8 && step->k_cache == TFM_NONE;
  return twice && 2 * step->tile_rows <= TFM_MAX_TILE_ROWS ? 2 * step->tile_rows : step->tile_rows;
}

typedef struct WholeScratch {    /* of one thread, behind what f32 needs */
  int64_t q, weights, row, work; /* floats from its beginning: rows of a strip, rows of keys or values, ... */
  int64_t q_floats, weights_floats, row_floats; /* of one row */
  int64_t floats;
} WholeScratch;
WholeScratch whole_scratch(const tfm_attention_step *step);
/* Rows of queries as whole numbers, s.q_floats apart, in scratch. */
const float *whole_queries(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                           const WholeScratch *s, const char *q, int64_t rows);
/* to[rows][columns] += from, a strip. */
void whole_add_rows(float *to, int64_t stride, const float *from, int64_t rows, int64_t columns);
/* Four rows of bytes become columns of a panel `width` wide: n times four bytes of each, 128 too large. */
void whole_put_keys(const char *const *rows, int64_t n, int64_t width, float *column);
/* Bytes of four rows go together, column by column: `columns` of them, a multiple of 8. */
void whole_interleave(const char *const *rows, int64_t columns, char *to);

int64_t whole_size_slots(Attention *attention);
void whole_load_block(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                      const AttentionItem *item, int64_t first, int64_t n, int64_t slot);
void whole_score(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                 const AttentionItem *item, int64_t row, int64_t rows, int64_t n, const float *keys);
void whole_add_values(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                      const AttentionItem *item, int64_t row, int64_t rows, int64_t state, int64_t block, int64_t n,
                      int64_t slot);

struct tfm_whole_attention {
  /* Sets the sizes of slots, and returns how many floats a thread needs besides. */
  int64_t (*size_slots)(Attention *attention);
  /* Fills a slot with the keys [first, first + n) and their values. */
  void (*load_block)(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                     const AttentionItem *item, int64_t first, int64_t n, int64_t slot);
  /* Scores of rows of queries and n keys, which go to the strip. */
  void (*score)(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                const AttentionItem *item, int64_t row, int64_t rows, int64_t n, const float *keys);
  /* c = or += weights * values, where the weights are in the strip. */
  void (*add_values)(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                     const AttentionItem *item, int64_t row, int64_t rows, int64_t state, int64_t block, int64_t n,
                     int64_t slot);
  const struct WholePages *pages; /* the same with keys and values in caches (decode/cache_pages.h); NULL: none are */
};

#endif

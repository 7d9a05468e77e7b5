/* Whole attention: the functions of attention in whole numbers, which the program points to. See whole_attention.c. */
#ifndef TFM_RUNTIME_WHOLE_ATTENTION_H
#define TFM_RUNTIME_WHOLE_ATTENTION_H

#include "attention.h"

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
};

#endif

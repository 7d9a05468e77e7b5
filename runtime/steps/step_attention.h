/* Attention: what step_attention.c and decode/paged_attention.c, whose keys and values are in pages, have in common. */
#ifndef TFM_RUNTIME_STEP_ATTENTION_H
#define TFM_RUNTIME_STEP_ATTENTION_H

#include "steps/live_runs.h"
#include "steps/epilogue.h"

enum {
  CHUNK_STRIPS = 8, /* strips that go through the blocks of keys together */
  CHUNK_ROWS = CHUNK_STRIPS * TFM_MAX_TILE_ROWS
};

typedef struct Attention {
  const tfm_attention_step *step;
  const Operand *q, *k, *v, *c, *weights, *padding; /* weights NULL: not wanted; padding NULL: no hint */
  const Operand *mask; /* of live queries; NULL: all are */
  bool c_wanted;
  bool keys_in_place; /* keys are not packed: there are few scores */
  bool one_query;     /* so neither are values: whether they are finite is seen in the results */
  int64_t items, queries, keys, key_blocks;
  int64_t causal_offset;                       /* see tfm_attention_step */
  int64_t strip_rows, strips, parts;           /* strips and parts per item; parts: units of an item */
  int64_t slots;                               /* packed blocks that are kept: one, or all of an item */
  int64_t key_slot_floats, value_slot_floats, whole_floats; /* whole_floats: of scratch->whole */
  Epilogue score;
} Attention;

typedef struct AttentionScratch { /* of one thread; lies in its scratch */
  float *keys, *values; /* a slot per packed block */
  float *strip;         /* TFM_MAX_TILE_ROWS rows of scores */
  float *maximum, *sum, *scale; /* of the rows of a chunk */
  float *waiting;               /* beyond TFM_CHAIN keys: what waits of the rows of a chunk, level by level */
  float *whole;                 /* of attention in whole numbers */
  int64_t *loaded;      /* per slot: the block in it, -1: none */
  int64_t *finite;      /* per slot: whether all its values are finite */
} AttentionScratch;

typedef struct AttentionItem { /* the batch item that a thread works on */
  int64_t number, limit; /* keys from `limit` on are masked for every query */
  bool is_plain;         /* below it the scores are used as they are */
  const char *q, *k, *v;
  char *c, *weights;
  LiveRows live; /* of its queries */
} AttentionItem;

typedef struct Strips { /* neighbouring queries, cut evenly */
  int64_t row, rows, n;
} Strips;

/* The keys that rows up to `last_row` may see. */
static inline int64_t keys_seen(const Attention *attention, const AttentionItem *item, int64_t last_row) {
  if (!attention->step->causal) return item->limit;
  return least_of(item->limit, greatest_of(0, last_row + 1 + attention->causal_offset));
}

/* One strip of queries against one block of keys: scores, softmax, sums of values. `state` is the strip's first row in
 * the chunk's arrays. The block must be loaded in `slot`. */
void attention_block(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                     const AttentionItem *item, int64_t row, int64_t rows, int64_t state, int64_t block, int64_t slot);
/* The part of it between the two products: n scores from first_key on, in the strip, become weights; what the rows
 * gathered so far is scaled. False: the sums of values are not wanted. */
bool attention_soften(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                      const AttentionItem *item, int64_t row, int64_t rows, int64_t state, int64_t first_key,
                      int64_t n);
/* Where the sums of values of a block belong, and the distance of their rows in floats. They go on from block to block
 * of a chain; attention_begins says where a chain begins. */
float *attention_place(const Attention *attention, const AttentionScratch *scratch, const AttentionItem *item,
                       int64_t row, int64_t state, int64_t block, int64_t *stride);
static inline bool attention_begins(int64_t block) { return block % (TFM_CHAIN / TFM_KEY_BLOCK) == 0; }
/* The end of it: the sums of a chain that is complete are added to those that wait for them. seen: keys that the
 * strip's last row sees. */
void attention_end_block(const Attention *attention, const AttentionScratch *scratch, const AttentionItem *item,
                         int64_t row, int64_t rows, int64_t state, int64_t block, int64_t seen);
/* After all blocks: divides by the sums; rows that saw no key become 0. seen: keys that the last row saw. */
void attention_finish(const Walker *walker, const Attention *attention, const AttentionScratch *scratch,
                      const AttentionItem *item, int64_t row, int64_t rows, int64_t state, int64_t seen);

/* Floats that wait, in scratch, where there are so many keys. */
int64_t attention_waiting(const tfm_attention_step *step, int64_t keys);

/* step_attention.c: the sizes and operands of a step that both kinds of attention need. */
Attention attention_describe(const tfm_context *context, const tfm_step *step);
void attention_choose_outputs(const tfm_context *context, const tfm_step *step, Attention *attention);
/* The first element of a batch item. */
char *attention_address(const tfm_context *context, const Attention *attention, const Operand *operand, int64_t item);
/* One past the last key that is not padding. */
int64_t attention_last_key(const tfm_context *context, const Attention *attention, int64_t item);
/* The first query of a strip. */
static inline int64_t strip_row(const Strips *strips, int64_t strip) {
  return strips->row + strips->rows * strip / strips->n;
}
static inline Strips all_strips(const Attention *attention) {
  return (Strips){0, attention->queries, attention->strips};
}

#endif

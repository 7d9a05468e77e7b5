/* Attention, strip by strip: what step_attention.c has in common with decode/loops/paged_attention.c, whose keys and
 * values are in pages.
 *
 * In: a strip of queries, a block of keys, and the two products of whoever knows where keys and values are: `score`
 * writes the scores of the block to the strip in scratch, `add` adds what its weights give to the results. Out: the
 * results. Refuses nothing.
 *
 * The loops, from outside to inside:
 *
 *   items              heads of sequences                 units, which threads share: all of it or some strips
 *     chunks           CHUNK_STRIPS strips of queries     the state of their rows (maximum, sum): scratch
 *       blocks         TFM_KEY_BLOCK keys                 packed, or pages of a cache: the second-level cache
 *         strips       tile_rows queries or more          attention_block: their scores stay in the nearest cache
 *           score      qk_width keys x tile_rows          registers: a tile of q times kT
 *           finish     masks, biases and factors of the scores; keys that no query of the strip sees are not read
 *           softmax    the block's weights, and what the rows have so far becomes smaller
 *           add        pv_width columns x tile_rows       registers: a tile of weights times v
 *         end          after TFM_CHAIN keys the sums go into a tree [attention_end_block]
 *
 * Rotations by position came before: keys lie turned, in caches too. */
#ifndef TFM_RUNTIME_ATTENTION_STRIP_H
#define TFM_RUNTIME_ATTENTION_STRIP_H

#include "machine/tuning.h"
#include "steps/epilogue.h"
#include "steps/items.h"
#include "steps/live_runs.h"

enum { CHUNK_ROWS = CHUNK_STRIPS * TFM_MAX_TILE_ROWS };

typedef struct Attention {
  const tfm_attention_step *step;
  const Operand *q, *k, *v, *c, *weights, *padding; /* weights NULL: not wanted; padding NULL: no hint */
  const Operand *mask; /* of live queries; NULL: all are */
  bool c_wanted;
  bool keys_in_place; /* keys are not packed: there are few scores */
  bool one_query;     /* so neither are values: whether they are finite is seen in the results */
  Items batch; /* its items are heads of sequences */
  int64_t items, queries, keys, key_blocks;
  int64_t causal_offset;                       /* see tfm_attention_step */
  int64_t strip_rows, strips, cuts;            /* of an item; cuts: units of it, or of a group (Paged.group) */
  int64_t slots;                               /* packed blocks that are kept: one, or all of an item */
  int64_t key_slot_floats, value_slot_floats, form_floats; /* form_floats: of scratch->form */
  const struct Int8Attention *int8; /* what takes the place of the functions for f32; NULL: nothing does */
  Epilogue score;
} Attention;

typedef struct AttentionScratch { /* of one thread; lies in its scratch */
  float *keys, *values; /* a slot per packed block */
  float *strip;         /* TFM_MAX_TILE_ROWS rows of scores */
  float *maximum, *sum, *scale; /* of the rows of a chunk */
  float *waiting;               /* beyond TFM_CHAIN keys: what waits of the rows of a chunk, level by level */
  float *form;                  /* what keys and values of another form than f32 need */
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

/* The first query of a strip. */
static inline int64_t strip_row(const Strips *strips, int64_t strip) {
  return strips->row + strips->rows * strip / strips->n;
}
static inline Strips all_strips(const Attention *attention) {
  return (Strips){0, attention->queries, attention->strips};
}

typedef struct AttentionStrip { /* some queries: of an item, or, in a gang, one of each of some items */
  const Walker *walker;
  const Attention *attention;
  const AttentionScratch *scratch;
  const AttentionItem *item; /* of the first row */
  const struct Pages *pages; /* paged_attention.c: where keys and values are; NULL: in memory */
  int64_t row, rows;         /* queries; in a gang 0 and how many rows of the step */
  int64_t state;             /* of its first row in the arrays of the chunk: maximum, sum, scale, waiting */
  int64_t seen;              /* keys that the last row sees */
  int64_t item_step;         /* of a gang: items from row to row; else 0 */
} AttentionStrip;

typedef struct KeyBlock { /* keys [first, first + n) */
  int64_t number, first, n;
  int64_t slot; /* of those in memory: where the block is packed */
} KeyBlock;

/* What is done of a strip with a block of keys. */
typedef void BlockWork(const AttentionStrip *strip, const KeyBlock *keys);

/* The part between the two products: n scores, in the strip, become weights; what the rows gathered so far is scaled.
 * False: the sums of values are not wanted. */
bool attention_soften(const AttentionStrip *strip, const KeyBlock *keys);
/* Where the sums of values of a block belong, and the distance of their rows in floats. They go on from block to block
 * of a chain; attention_begins says where a chain begins. */
float *attention_place(const AttentionStrip *strip, int64_t block, int64_t *stride);
static inline bool attention_begins(int64_t block) { return block % (TFM_CHAIN / TFM_KEY_BLOCK) == 0; }
/* The end of a block: the sums of a chain that is complete are added to those that wait for them. */
void attention_end_block(const AttentionStrip *strip, int64_t block);
/* Before all blocks: the state of so many rows. After them: divides by the sums; rows that saw no key become 0. */
void attention_begin(const AttentionScratch *scratch, int64_t rows);
void attention_finish(const AttentionStrip *strip);
/* The score expression. Rows of a gang are rows of different items. */
void attention_finish_scores(const AttentionStrip *strip, const KeyBlock *keys);

/* One strip of queries against one block of keys. Inline, so that each kind of attention has its own two products. */
static inline void attention_block(const AttentionStrip *strip, int64_t number, int64_t slot, BlockWork *score,
                                   BlockWork *add) {
  const int64_t first = number * TFM_KEY_BLOCK;
  const KeyBlock keys = {number, first, least_of(TFM_KEY_BLOCK, strip->seen - first), slot};
  if (keys.n <= 0) return;
  score(strip, &keys);
  attention_finish_scores(strip, &keys);
  if (attention_soften(strip, &keys)) add(strip, &keys);
  attention_end_block(strip, number);
}

/* The parts of a thread's scratch, one behind the other from `base`; returns their bytes. base NULL: only these. */
int64_t attention_scratch(const Attention *attention, char *base, AttentionScratch *scratch);

/* What attention in whole numbers does itself (attention_int8.c). */
typedef struct Int8Attention {
  /* Sets the sizes of slots, and returns how many floats a thread needs besides. */
  int64_t (*size_slots)(Attention *attention);
  BlockWork *load;  /* fills a slot with keys and their values; of the strip the item counts */
  BlockWork *score; /* scores of the strip's rows and the block's keys, which go to the strip */
  BlockWork *add;   /* c = or += weights * values, where the weights are in the strip */
} Int8Attention;

#endif

/* The gradient of attention, strip by strip: what a block of queries asks of the kernels once its scores are there.
 *
 * In: packed keys, values, queries and g of a block (step_attention_grad.c, where the loops are drawn). Out: strips of
 * scores, and of what they get; probabilities, what queries get, what keys and values get. Refuses nothing.
 *
 * P is softmax(scores), K what dropout keeps of a strip, X what K(P) gets. A strip holds one after the other:
 *
 *   p      scores q kT          the step's kernels score and softmax     [find_probabilities]
 *          powers               divided by their sums, so P, if nothing is dropped; else kernels divide
 *   back   X = g vT
 *   kept   K(P)                 kernel kept; if nothing is dropped, kept is p     [find_gradient]
 *   products (a number a row)   sum of P K(X): kernel sum_products                [find_gradient]
 *   back   what q kT gets       P (K(X) - sum), back through the scores: kernel through   [give_queries]
 *
 * Then queries get back k [give_queries], keys backT q and values keptT g [give_keys]. In the first part (is_forward)
 * there are p and K(P) v alone. */
#ifndef TFM_RUNTIME_ATTENTION_GRAD_STRIP_H
#define TFM_RUNTIME_ATTENTION_GRAD_STRIP_H

#include "steps/epilogue.h"
#include "steps/items.h"
#include "steps/live_runs.h"

typedef struct Grad {
  const tfm_attention_grad_step *step;
  const struct attention_grad_operands *operands;
  Items batch; /* its items are heads of sequences */
  int64_t items, queries, keys, causal_offset;
  int64_t key_blocks, block_rows; /* rows: of queries */
  int64_t strip_floats;           /* of a block of keys of all rows of a block of queries */
  int64_t key_width, score_rows;  /* of the tiles over columns of keys and values */
  int64_t columns, width;         /* of c, which has those of v if is_forward, else of q; of its tiles */
  const uint32_t *qk_tiles, *gv_tiles;
  uint32_t pack_columns;
  Epilogue score;
} Grad;

enum { MOST_LISTS = 8 };

/* Rows of the next item that are asked for while this one is computed, some with every tile: all at once they would
 * wait for each other, and this item's own lines for them. */
typedef struct FetchList {
  const char *rows;
  int64_t stride, bytes, n; /* bytes and number of rows */
} FetchList;

typedef struct RowsAhead {
  FetchList lists[MOST_LISTS];
  int list, n;      /* the list at hand, and how many there are */
  int64_t row, few; /* the row at hand of it; rows at a time */
} RowsAhead;

typedef struct GradScratch {                                           /* of one thread */
  float *key_columns, *value_columns, *key_rows, *query_rows, *g_rows; /* packed; is_forward: key_rows are of values */
  float *p, *kept, *back;                  /* strips, [block of keys][row]; kept is p if nothing is taken */
  float *maximum, *sum, *scale, *products; /* a number per row of a strip; of products two */
  double *totals;                          /* likewise: sums over blocks of keys */
  Epilogue keep, sum_products, through;    /* the step's kernels kept, sum_products and through, over `operands` */
  RowsAhead ahead;
  Operand operands[TFM_MAX_OPERANDS]; /* those of the step, then TFM_GRAD_OPERANDS that lie in strips */
} GradScratch;

typedef struct GradItem {
  int64_t number;
  const char *q, *k, *v, *g;
  char *c, *dk, *dv;
  int64_t limit; /* one past the last key that is no padding; those behind it get nothing and are not read */
  int64_t begun; /* keys whose chains have begun */
  LiveRows live; /* of its queries; no mask: all */
} GradItem;

typedef struct GradJob { /* what a thread does: an item */
  const Walker *walker;
  const Grad *grad;
  GradScratch *scratch;
  GradItem *item;
} GradJob;

typedef struct GradBlock { /* n queries of an item from `first` on */
  const GradJob *job;
  int64_t first, n, seen; /* seen: keys that some query of the block may see */
} GradBlock;

typedef struct GradRows { /* n rows of an operand, from `from` on: bytes between them, columns of one */
  const char *from;
  int64_t stride, n, columns;
} GradRows;

typedef struct GradScores { /* a product of rows of queries with packed columns of keys or values, and its strips */
  const uint32_t *tiles;
  const float *packed;
  float *strips;
} GradScores;

typedef struct GradGiven { /* what keys or values get: strips transposed times packed rows */
  char *to;
  int64_t stride, columns, width;
  const uint32_t *tiles;
  const float *strips, *packed;
} GradGiven;

/* Queries [row, row + rows) of an item: those of one tile or, if there are few keys, of several: a call for more rows
 * costs less by the row. */
typedef struct GradStrip {
  const GradJob *job;
  int64_t row, rows;
  int64_t at;   /* its first row in the strips of a block */
  int64_t seen; /* keys */
} GradStrip;

/* Numbers of a strip's rows and a block's keys: bytes between rows, between keys. */
typedef struct Stretch {
  float *numbers;
  int64_t row_bytes, key_bytes;
} Stretch;
static inline Stretch whole_rows(float *strip) {
  return (Stretch){strip, TFM_STRIP_STRIDE * (int64_t)sizeof(float), sizeof(float)};
}
static inline Stretch one_a_row(float *numbers) { return (Stretch){numbers, sizeof(float), 0}; }

/* Rows times packed columns: scores, or g vT. A panel serves all strips while it is near. */
void grad_multiply_columns(const GradBlock *block, const GradRows *rows, const GradScores *product);
/* The strip from its scores on: probabilities, what they get, what its queries get. */
void attention_grad_strip(const GradStrip *strip);
/* to[keys] (+)= strips transposed times rows: chains over the queries, which go on from block to block. Keys that no
 * block before this one has seen begin theirs. */
void grad_give_keys(const GradBlock *block, const GradGiven *given);
/* Brings a few rows of the next item nearer. */
void fetch_some(RowsAhead *ahead);
static inline int64_t grad_stride(const Grad *a, const Operand *operand) { return operand->strides[a->step->rank - 2]; }
static inline int64_t grad_floats(const Grad *a, const Operand *operand) {
  return grad_stride(a, operand) / (int64_t)sizeof(float);
}

#endif

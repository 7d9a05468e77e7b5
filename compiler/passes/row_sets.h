/* RowSet: which elements of a value matter, as a union of conjunctions of masks and of ranges of positions.
 *
 * In: bool nodes, conditions of expressions, slices. Out: unions, intersections, the same set over the axes of another
 * value; masks, added to the graph, that are true in the rows of a set. A set may always grow: where a mask is
 * forgotten, or `most` terms are not enough, more elements count than must. Nothing is refused; the masks that sets
 * name are nodes of the graph. */
#ifndef TFM_PASSES_ROW_SETS_H
#define TFM_PASSES_ROW_SETS_H

#include "graph/infer.h"
#include "passes/match.h"

/* One condition: the mask is `where`, or the position along the only axis lies in [start, end). A mask is a bool node,
 * or an i32 node that is compared with a number; its long axes (those that are not 1) are axes of the value. */
typedef struct RowMask {
  const Node *node; /* NULL: a range */
  bool where;
  int64_t number; /* i32: the mask is true where the node is this */
  const Size *start, *end;
  uint8_t n_axes;
  uint8_t axes[MAX_RANK]; /* of the value, one for each long axis of the mask, in the mask's order */
} RowMask;

enum {
  ROWS_MOST_MASKS = 4, /* padding of queries and of keys, a causal mask, and one to spare */
  ROWS_MOST_TERMS = 3
};

typedef struct RowTerm { /* elements where all of the masks hold; at least one */
  uint8_t n;
  RowMask masks[ROWS_MOST_MASKS];
} RowTerm;

typedef struct RowSet {
  bool all;
  uint8_t n; /* not all: elements of any of the terms; 0: none */
  RowTerm terms[ROWS_MOST_TERMS];
} RowSet;

#define ROWS_ALL ((RowSet){.all = true})
#define ROWS_NONE ((RowSet){0})

static inline bool rows_are_none(const RowSet *set) { return !set->all && set->n == 0; }
static inline bool rows_are_some(const RowSet *set) { return !set->all && set->n > 0; }

/* `most`: of terms of the result, at least 1. */
RowSet rows_union(uint32_t most, const RowSet *a, const RowSet *b);
RowSet rows_both(uint32_t most, const RowSet *a, const RowSet *b);
/* The set in the axes of another value: axis i is axes[i] there, -1 if it is none. Masks along such an axis are
 * dropped. */
RowSet rows_map(uint32_t most, const RowSet *set, const int32_t *axes);
/* Only where the position along the axis lies in [start, end). */
RowSet rows_in_range(const RowSet *set, uint32_t axis, const Size *start, const Size *end);
/* Whether all elements of `part` are seen to be in `whole`. */
bool rows_within(const RowSet *part, const RowSet *whole);
bool rows_equal(const RowSet *a, const RowSet *b);
bool rows_have_axis(const RowSet *set, uint32_t axis);
bool rows_same_mask(const RowMask *a, const RowMask *b);

/* The axes of a result as those of an operand that broadcasts to it, and the other way round. */
void rows_aligned_axes(const Node *operand, uint32_t rank, int32_t *axes);
void rows_widened_axes(const Node *operand, uint32_t rank, int32_t *axes);

/* The axes of what is reshaped that axis `axis` of the reshape is made of. 0: they are not whole. */
uint32_t rows_merged_axes(SizeTable *sizes, const Node *reshape, uint32_t axis, int32_t *axes);

/* The axis of columns, along which rows are not told apart: masks of dropout are many there, and say nothing. A matrix
 * of numbers per row, such as losses of tokens, has none: MAX_RANK. */
static inline uint32_t rows_columns(const NodeType *domain) { return domain->rank > 2 ? domain->rank - 1u : MAX_RANK; }

/* Where a condition over the domain may be `holds`. A mask along the axis `apart` is dropped: rows are not told apart
 * there (MAX_RANK: none is). The condition is an expression over the inputs of the node. */
RowSet rows_of_condition(uint32_t most, const Node *node, const NodeType *domain, const Expr *condition, bool holds,
                         uint32_t apart);
/* The keys that some query may see, over the scores: a score of -inf is a weight of exactly 0, even in a row of nothing
 * else, and a weight of 0 takes nothing from the value. Only selections around the whole expression count: below an
 * operation that could make something else of -inf they prove nothing. */
RowSet rows_of_seen_keys(uint32_t most, const Node *node, const NodeType *scores, const Expr *expr);

// ---- sets as masks ----

typedef struct MaskView { /* a mask with the axes of 1 that a node's rows need */
  const Node *mask;
  Node *view;
} MaskView;

typedef struct SetMask { /* a set as a mask, made of others */
  RowSet rows;
  Node *mask;
} SetMask;

/* The masks that were made, each for all nodes that need the same. */
typedef struct RowMasks {
  Pass *pass;
  bool needs_order; /* a mask lies in memory as its axes say */
  VEC(MaskView) views;
  VEC(SetMask) sets;
} RowMasks;

/* Whether the mask tells each row of a node over `rank` axes. Attention skips queries within a head, whatever the other
 * axes. */
bool rows_tell_all(const Node *node, const RowMask *mask, uint32_t rank, const Size *const *dims);
/* The mask in this shape. */
Node *rows_mask_view(RowMasks *masks, const Node *mask, uint32_t rank, const Size *const *dims);
/* A mask over these axes, before `node`, that is `*where` in the rows of the set, which has some. */
Node *rows_as_mask(RowMasks *masks, Node *node, const RowSet *rows, uint32_t rank, const Size *const *dims,
                   bool *where);

#endif

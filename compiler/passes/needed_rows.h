/* NeededRows: at which rows of a value somebody looks.
 *
 * In: a fused graph. Out: for each node a RowNeed: everywhere, nowhere, or only where each of some masks has one of its
 * two values. A mask is a bool node; its long axes (those that are not 1) are axes of the value. */
#ifndef TFM_PASSES_NEEDED_ROWS_H
#define TFM_PASSES_NEEDED_ROWS_H

#include "graph/infer.h"
#include "passes/pass.h"

typedef enum NeedKind { NEED_NOTHING, NEED_SOME, NEED_ALL } NeedKind;

typedef struct RowMask {
  const Node *node;
  bool where; /* needed only where the mask is this */
  uint8_t n_axes;
  uint8_t axes[MAX_RANK]; /* of the value, one for each long axis of the mask, in the mask's order */
} RowMask;

enum { NEED_MOST_MASKS = 4 };

typedef struct RowNeed {
  NeedKind kind;
  uint8_t n_masks; /* SOME: at least one; rows are needed at most where all of them say so */
  RowMask masks[NEED_MOST_MASKS];
} RowNeed;

#define NEEDED_EVERYWHERE ((RowNeed){.kind = NEED_ALL})

/* What two users need together: the masks that both heed; none: everything. */
RowNeed need_join(const RowNeed *a, const RowNeed *b);
/* What is needed of rows that both say are needed. */
RowNeed need_both(const RowNeed *a, const RowNeed *b);
/* The need of an operand: axis i is made of axis axes[i] of the operand; -1: of none, or of all. */
RowNeed need_map(const RowNeed *need, const int32_t *axes);
bool need_has_axis(const RowNeed *need, uint32_t axis);
/* The axes of an operand that is aligned with a domain at the last axis, -1 where it broadcasts. */
void need_aligned_axes(const Node *operand, uint32_t rank, int32_t *axes);

// ---- needed_rows_expr.c: expressions of fused nodes ----

/* The rows over `domain` where the condition, an expression of `node`, may be `holds`: everywhere if no mask says so.
 * Masks that vary along the axis `apart` of the domain say nothing. */
RowNeed need_of_condition(const Node *node, const NodeType *domain, const Expr *condition, bool holds, uint32_t apart);
/* In: what is needed of the node's expression, over the domain. Joins into `operands` what is needed of each input, and
 * into `acc` (over the domain) what is needed of the product. */
void need_of_expr(Pass *pass, const Node *node, const NodeType *domain, const RowNeed *root, RowNeed *operands,
                  RowNeed *acc);
/* Whether computing it can report a fault, which must be reported wherever it is. */
bool expr_can_fail(Arena *scratch, const Expr *expr);

// ---- needed_rows_flow.c: operations ----

/* In: what is needed of the node's result. Out: what it needs of each input. */
void need_of_operands(Pass *pass, const Node *node, const RowNeed *need, RowNeed *operands);

#endif

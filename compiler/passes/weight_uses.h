/* Who else uses (a part of) a weight: a weight is changed or laid out anew only if all its uses agree, else it would
 * be copied.
 *
 * A region is a box of the tensor that views were taken of: rows 0 to 512 of "in_proj_weight", say. */
#ifndef TFM_PASSES_WEIGHT_USES_H
#define TFM_PASSES_WEIGHT_USES_H

#include "passes/match.h"

typedef struct WeightRegion {
  Node *root;
  int64_t from[MAX_RANK], to[MAX_RANK];
} WeightRegion;

/* The region behind rows [from, to) (axis 0) of a static node; to = -1: all rows. */
WeightRegion weight_region(Node *node, int64_t from, int64_t to);
bool weight_region_equal(const WeightRegion *a, const WeightRegion *b);

/* Whether `user`, which uses `as` (a view of the root, or the root), agrees. */
typedef bool WeightAgrees(const void *context, const Node *user, const Node *as);
/* Asks everyone who uses any element of the region. False too if an output shows it. */
bool weight_uses_agree(Pass *pass, const WeightRegion *region, WeightAgrees *agrees, const void *context);

#endif

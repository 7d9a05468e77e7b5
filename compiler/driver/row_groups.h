/* Rows of a call for scores that are run together, and tensors with one part per row: items of a batch, what rows keep.
 *
 * In: a call of the decoding loop. Out: each of its rows in one group, in the order of the first row of each. */
#ifndef TFM_DRIVER_ROW_GROUPS_H
#define TFM_DRIVER_ROW_GROUPS_H

#include "graph/eval.h"
#include "tfm/generate.h"

typedef struct RowGroup {
  const tfm_step_rows *call;
  int64_t *numbers, n; /* which rows of the call */
  int64_t longest;     /* tokens */
} RowGroup;

typedef struct RowGrouping {
  void *context;
  bool (*fits)(const void *context, const tfm_step_rows *call, int64_t a, int64_t b); /* two rows can be run together */
  bool (*run)(void *context, const RowGroup *group);
} RowGrouping;

/* Runs every group; false as soon as a run is. */
bool row_groups_run(Arena *arena, const tfm_step_rows *call, const RowGrouping *grouping);

/* A tensor of `to_n` parts along an axis, each as long as one of the `from_n` parts of `like`, without values. */
Tensor parts_tensor(Arena *arena, const Tensor *like, int64_t from_n, int64_t to_n, uint32_t axis);
/* Copies part `from_part` of `from_n` along an axis to part `to_part` of `to_n`. */
void parts_copy(Tensor *to, int64_t to_part, int64_t to_n, const Tensor *from, int64_t from_part, int64_t from_n,
                uint32_t axis);
/* The parts of the group's items, out of those of `items`. */
Tensor parts_gather(Arena *arena, const Tensor *from, int64_t items, uint32_t axis, const RowGroup *group);
/* The tokens of the group's rows from `past` on, [rows][longest - past]. */
Tensor group_tokens(Arena *arena, const RowGroup *group, int64_t past);

#endif

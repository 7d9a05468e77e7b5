/* Mask: which keys of an attention can be left out, read from the expression of its scores. Private to plan/. */
#ifndef TFM_PLAN_MASK_H
#define TFM_PLAN_MASK_H

#include "plan/nest.h"

typedef struct MaskHints {
  bool causal;          /* every key after the query's row + causal_offset is -inf */
  const Size *causal_offset;
  uint8_t padding;      /* a bool operand without a stride along t; 0: none */
  bool padding_true;    /* keys are -inf where it is true, else where it is false */
  bool padding_only;    /* the scores of other keys stay as they are */
} MaskHints;

/* `nest` has the axes [..., t, s]. */
MaskHints mask_hints(Planner *p, const Nest *nest);

#endif

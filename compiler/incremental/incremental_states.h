/* States of a step: what earlier positions have left of a recurrence, a running sum, rows before the new ones. Private
 * to incremental/. */
#ifndef TFM_INCREMENTAL_STATES_H
#define TFM_INCREMENTAL_STATES_H

#include "incremental/stepper.h"

/* The inputs that hold states, in the order of the nodes. False: a size is too large. */
bool add_states(Stepper *s, Incremental *result);
/* The new positions of what is carried. The first use of a state also builds what it becomes. */
Node *build_carried(Stepper *s, Builder *b, const Node *node, const Use *use, const Size *const *dims);

#endif

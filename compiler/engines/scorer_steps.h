/* StepScorer: scores for the decoding loop by the incremental form of a model and the reference interpreter.
 *
 * In: the source and step graphs as they were derived, the inputs that do not grow. The source graph is computed
 * once for all items; each call computes the new tokens of its rows. What a row keeps is a tensor for each cache of
 * the step; rows with as many earlier and new tokens go together. Slow, and the oracle of what native code does with
 * pages. */
#ifndef TFM_ENGINES_SCORER_STEPS_H
#define TFM_ENGINES_SCORER_STEPS_H

#include "engines/scorer.h"
#include "incremental/incremental.h"

typedef struct StepScorer StepScorer;

/* `parts->step` is not NULL. NULL after an error. */
StepScorer *step_scorer_new(const Scorer *scorer, const Incremental *parts, WeightSource *weights);
tfm_generate_model step_scorer_model(StepScorer *scorer);
void step_scorer_destroy(StepScorer *scorer); /* NULL is ignored */

#endif

/* WeightPrefix: below which modules of a file the weights of a model lie, if not where the model looks for them.
 *
 * In: what the model needs, the tensors of the file. Out: the one --weights-prefix that finds every weight that the
 * file has at all; or, where there is none, the `as "path"` that each member of the model needs. Nothing is advised
 * that would make other weights missing. */
#ifndef TFM_ENGINES_WEIGHT_PREFIX_H
#define TFM_ENGINES_WEIGHT_PREFIX_H

#include "engines/weight_source.h"

typedef struct WeightPrefixes WeightPrefixes;

WeightPrefixes *weight_prefixes_new(const WeightCheck *check, const NodeList *needed, const WeightSet *set);
/* One error for all weights that a prefix or `as` finds, with what to do. */
void weight_prefixes_report(const WeightPrefixes *prefixes);
/* Whether that error speaks of this weight. */
bool weight_prefixes_told(const WeightPrefixes *prefixes, const char *name);
/* For the message about a missing weight of which nothing was told: ", but ..."; NULL if no module of the file has
 * it. */
const char *weight_prefixes_hint(const WeightPrefixes *prefixes, const char *name);

#endif

/* Names of weights that stand in a file behind prefixes: --weights-prefix and `as` of a model are advised. */
#ifndef TFM_ENGINES_WEIGHT_PREFIXES_H
#define TFM_ENGINES_WEIGHT_PREFIXES_H

#include "engines/weight_source.h"

typedef struct WeightPrefixes WeightPrefixes;

/* Lives in the check's arena. */
WeightPrefixes *weight_prefixes_new(const WeightCheck *check, const NodeList *needed, const WeightSet *set);
/* One error for all weights that a prefix or `as` finds, with what to do; whether it speaks of this weight. */
void weight_prefixes_report(const WeightPrefixes *p);
bool weight_prefixes_told(const WeightPrefixes *p, const char *name);
/* For the message about a missing weight of which nothing was told: ", but ..."; NULL if no module of the file has
 * it. */
const char *weight_prefixes_hint(const WeightPrefixes *p, const char *name);

#endif

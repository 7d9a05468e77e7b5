/* Settings of a train block: read, checked, and asked about weights. */
#ifndef TFM_ELABORATE_TRAIN_SETTINGS_H
#define TFM_ELABORATE_TRAIN_SETTINGS_H

#include "elaborate/elaborate_call.h"
#include "elaborate/objective.h"

/* The settings of the block, or of the options in their place. Errors are in the diagnostics. */
void read_train_settings(Elaborator *e, const Ast *block, Scope *scope, TrainSettings *settings);
/* Patterns of weights, each with a number above 0, of the setting `name`. */
void read_rates(Elaborator *e, const char *name, Value v, Rates *to);
/* Every pattern must match a weight, which is known then. */
void check_train_patterns(Elaborator *e, const Objective *objective);

#endif

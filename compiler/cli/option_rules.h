/* Whether a command reads every option that it is given.
 *
 * In: options that options_parse understood. Refuses (DIAG_USAGE) those that would change nothing beside the others:
 * option_rules.def is the only list. */
#ifndef TFM_CLI_OPTION_RULES_H
#define TFM_CLI_OPTION_RULES_H

#include "cli/cli_options.h"

/* Whether an --input gives sizes alone, for random numbers. */
bool options_have_random_input(const Options *options);
/* False after an error. */
bool options_are_all_read(Diag *diag, const Options *options);

#endif

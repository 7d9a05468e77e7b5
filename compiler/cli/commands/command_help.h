/* Help: what the tables of verbs and options say, as text for a terminal. Used by `tfmc help`, by --help, and after a
 * command line without a verb. */
#ifndef TFM_CLI_COMMANDS_COMMAND_HELP_H
#define TFM_CLI_COMMANDS_COMMAND_HELP_H

#include "base/strbuf.h"
#include "cli/cli_options.h"

/* All commands. */
void help_usage(StrBuf *out);
/* One command with its options. */
void help_verb(StrBuf *out, Verb verb);

#endif

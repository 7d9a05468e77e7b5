/* The verbs of verbs.def, one function each. A command does its work and reports what is wrong in session->diag, whose
 * exit code becomes that of the process; it frees what does not live in the session's arena. */
#ifndef TFM_CLI_COMMANDS_COMMANDS_H
#define TFM_CLI_COMMANDS_COMMANDS_H

#include "cli/session.h"

#define VERB(Enum, name, arguments, least, most, takes, output, line, details) void command_##name(Session *session);
#include "cli/verbs.def"

#endif

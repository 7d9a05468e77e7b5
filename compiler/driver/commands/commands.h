/* The verbs. Each does its work and reports what is wrong in session->diag, whose exit code is the command's. */
#ifndef TFM_DRIVER_COMMANDS_COMMANDS_H
#define TFM_DRIVER_COMMANDS_COMMANDS_H

#include "driver/session.h"

#define VERB(Enum, name, arguments, least, most, line, details) void command_##name(Session *session);
#include "driver/verbs.def"

#endif

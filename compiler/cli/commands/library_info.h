/* tfmc info of a library. */
#ifndef TFM_CLI_COMMANDS_LIBRARY_INFO_H
#define TFM_CLI_COMMANDS_LIBRARY_INFO_H

#include "cli/session.h"

void tell_library(Session *session, StrBuf *out, const char *path);

#endif

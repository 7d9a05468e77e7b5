/* What `tfmc info` says of a compiled library and of a file of packed weights. */
#ifndef TFM_DRIVER_INFO_LIBRARY_H
#define TFM_DRIVER_INFO_LIBRARY_H

#include "driver/session.h"

void tell_library(Session *session, StrBuf *out, const char *path);
void tell_packed(Session *session, StrBuf *out, const char *path);

#endif

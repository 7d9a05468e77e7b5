/* Errors of the runtime. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

tfm_status tfm_fail(tfm_error *error, tfm_status status, tfm_reason reason, const char *place, const char *format,
                    ...) {
  if (!error) return status;
  va_list args;
  va_start(args, format);
  vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  error->status = status;
  error->reason = reason;
  error->place = place;
  return status;
}

tfm_status tfm_succeed(tfm_error *error) {
  if (!error) return TFM_OK;
  error->status = TFM_OK;
  error->message[0] = 0;
  error->reason = TFM_REASON_OTHER;
  error->place = NULL;
  return TFM_OK;
}

/* In: what went wrong, in words and with the status and the reason of types.h. Out: the caller's tfm_error, filled, and
 * the status.
 *
 * A caller that gives no tfm_error gets the status alone. A message that does not fit is cut; places are constant data
 * of a program, so that pointers to them stay valid. Nothing here allocates or prints: these functions are called where
 * there is no memory, and in threads of a pool. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

// ---- a message ----

/* All members but the message. */
static void fill_error(tfm_error *error, tfm_status status, tfm_reason reason, const char *place) {
  error->status = status;
  error->reason = reason;
  error->place = place;
}

tfm_status tfm_fail(tfm_error *error, tfm_status status, tfm_reason reason, const char *place, const char *format,
                    ...) {
  if (!error) return status;
  va_list args;
  va_start(args, format);
  vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  fill_error(error, status, reason, place);
  return status;
}

tfm_status tfm_refuse(tfm_error *error, tfm_status status, const char *format, ...) {
  if (!error) return status;
  va_list args;
  va_start(args, format);
  vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  fill_error(error, status, status == TFM_E_INPUT ? TFM_REASON_VALUE : TFM_REASON_OTHER, NULL);
  return status;
}

tfm_status tfm_succeed(tfm_error *error) {
  if (!error) return TFM_OK;
  error->message[0] = 0;
  fill_error(error, TFM_OK, TFM_REASON_OTHER, NULL);
  return TFM_OK;
}

// ---- what several files refuse ----

tfm_status tfm_refuse_call(tfm_error *error, const char *why) {
  return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "%s", why);
}

tfm_status tfm_refuse_file(tfm_error *error, const char *path, const char *why) {
  return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "%s: %s", path, why);
}

tfm_status tfm_no_memory(tfm_error *error, const char *what) {
  return tfm_fail(error, TFM_E_NOMEM, TFM_REASON_OTHER, NULL, "no memory for %s", what);
}

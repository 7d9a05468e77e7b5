/* Errors of the runtime. Each function fills the caller's tfm_error, which may be NULL, and returns its status, so
 * that a failure is one return statement. Messages are English sentences without a full stop that name what was given
 * and what is legal. */
#ifndef TFM_RUNTIME_ERROR_H
#define TFM_RUNTIME_ERROR_H

#include "tfm/tfm.h"

/* Fills `error` (may be NULL) and returns `status`. */
tfm_status tfm_fail(tfm_error *error, tfm_status status, tfm_reason reason, const char *place, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The same without a place; the reason is TFM_REASON_VALUE if `status` is TFM_E_INPUT, else TFM_REASON_OTHER. */
tfm_status tfm_refuse(tfm_error *error, tfm_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* TFM_E_USAGE: a call that the interface forbids. */
tfm_status tfm_refuse_call(tfm_error *error, const char *why);
/* TFM_E_ENV: "path: why". */
tfm_status tfm_refuse_file(tfm_error *error, const char *path, const char *why);
/* TFM_E_NOMEM: "no memory for what". */
tfm_status tfm_no_memory(tfm_error *error, const char *what);
/* The status TFM_OK, with an empty message. */
tfm_status tfm_succeed(tfm_error *error);

#endif

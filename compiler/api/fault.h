/* What went wrong, on its way to the caller's tfm_error. Nothing here allocates. */
#ifndef TFM_API_FAULT_H
#define TFM_API_FAULT_H

#include "tfm/tfm.h"

/* Fills `error` (may be NULL) and returns `status`. */
tfm_status fault(tfm_error *error, tfm_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same with the text of an error number of the system behind it. */
tfm_status fault_of_system(tfm_error *error, tfm_status status, int number, const char *what);

#endif

/* Whether a text is a value that an option may have. */
#ifndef TFM_DRIVER_OPTION_VALUES_H
#define TFM_DRIVER_OPTION_VALUES_H

#include "driver/options.h"

/* False after an error. */
bool option_check(Diag *diag, Option option, const char *text);

#endif

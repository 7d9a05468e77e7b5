#include "api/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

tfm_status fault(tfm_error *error, tfm_status status, const char *format, ...) {
  if (!error) return status;
  *error = (tfm_error){.status = status};
  va_list args;
  va_start(args, format);
  vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  return status;
}

tfm_status fault_of_system(tfm_error *error, tfm_status status, int number, const char *what) {
  char text[128] = "";
  if (strerror_r(number, text, sizeof text)) text[0] = '\0';
  return fault(error, status, "%s: %s", what, text);
}

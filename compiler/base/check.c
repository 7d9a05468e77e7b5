#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

_Noreturn void internal_error(const char *file, int line, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "tfmc: internal error at %s:%d: ", file, line);
  vfprintf(stderr, format, args);
  fputs("\nThis is a fault of tfmc, not of the model. Please report it with the model that shows it.\n", stderr);
  va_end(args);
  exit(70);
}

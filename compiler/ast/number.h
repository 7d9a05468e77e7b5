/* Doubles as text, in the same way under every locale of the process. */
#ifndef TFM_AST_NUMBER_H
#define TFM_AST_NUMBER_H

#include "base/strbuf.h"

/* The double nearest to a decimal number, infinite if it is too large. */
double number_read(const char *text);
/* The shortest text that number_read gives `value` for; never one that looks like an integer. `inf` for infinity. */
void number_add(StrBuf *out, double value);

#endif

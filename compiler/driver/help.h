/* Help: what the tables of verbs and options say, as text. */
#ifndef TFM_DRIVER_HELP_H
#define TFM_DRIVER_HELP_H

#include "base/strbuf.h"
#include "driver/options.h"

/* All commands. */
void help_usage(StrBuf *out);
/* One command with its options. */
void help_verb(StrBuf *out, Verb verb);

#endif

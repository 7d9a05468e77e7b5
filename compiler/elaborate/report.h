/* Messages while they are put together: their text, and the sizes that a run fills in. Private to report.c,
 * conditions.c and modules.c. */
#ifndef TFM_ELABORATE_REPORT_H
#define TFM_ELABORATE_REPORT_H

#include <stdarg.h>

#include "elaborate/elaborator.h"

/* A message with more shapes than this shows the rest without a note. */
enum { MAX_CONCERNED = 4 };

/* Text, and for a check of the run the sizes that the run fills in. */
typedef struct Message {
  Arena *arena;
  SizeTable *sizes;
  VEC(CheckPart) parts; /* each ends with a size */
  StrBuf text;          /* after the last part */
  Node *concerned[MAX_CONCERNED]; /* tensors whose shapes are shown: a note says where they were declared */
  uint32_t n_concerned;
} Message;

Message message_new(Elaborator *e);
/* With the values of `args` in place of the directives of elaborator.h. */
Message message_format(Elaborator *e, const char *format, va_list *args);
void message_add_size(Message *m, const Size *size, bool named);
void message_add_value(Message *m, Value v);
/* Adds the message to the Diag unless its fault is known; POISON. `note` stands at `other`; NULL: there is none. */
Value message_report(Elaborator *e, SrcSpan span, DiagCode code, const Message *m, SrcSpan other, const char *note);

#endif

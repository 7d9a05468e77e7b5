/* Message: the text of a fault, put together from a format and values.
 *
 * In: a format of elaborator.h and its values. Out: text, or the parts of a check in which run-time sizes get their
 * values. The tensors whose shapes are shown are remembered: a note says where they were declared. */
#ifndef TFM_ELABORATE_MESSAGE_H
#define TFM_ELABORATE_MESSAGE_H

#include <stdarg.h>

#include "elaborate/elaborator.h"

enum { MAX_CONCERNED = 4 };

typedef struct Message {
  Arena *arena;
  SizeTable *sizes;
  VEC(CheckPart) parts; /* each ends with a size */
  StrBuf text;          /* after the last part */
  Node *concerned[MAX_CONCERNED];
  uint32_t n_concerned;
} Message;

Message message_new(Elaborator *e);
Message message_format(Elaborator *e, const char *format, va_list *args);
/* `named`: a run prints "time = 7", else "7". */
void message_add_size(Message *m, const Size *size, bool named);
void message_add_value(Message *m, Value v);
/* All of it, sizes as polynomials. */
const char *message_text(const Message *m);

#endif

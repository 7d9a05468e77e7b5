/* Documents made from the tables of verbs and options: the manual page and the completion of shells. */
#ifndef TFM_DRIVER_DOCUMENT_H
#define TFM_DRIVER_DOCUMENT_H

#include "base/strbuf.h"
#include "driver/options.h"

void document_man(StrBuf *out);  /* tfmc.1 */
void document_bash(StrBuf *out);
void document_zsh(StrBuf *out);

/* The words that an option takes, a space between each: of a CHOICE, or the instruction sets; "" if they are not known. */
const char *option_words(Arena *arena, Option option);
/* Whether it names a file or folder. */
bool option_names_file(Option option);

#endif

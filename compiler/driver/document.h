/* Documents made from the tables: the manual page, the completion of shells, and the tables of docs/ as Markdown. */
#ifndef TFM_DRIVER_DOCUMENT_H
#define TFM_DRIVER_DOCUMENT_H

#include "base/strbuf.h"
#include "driver/options.h"

void document_man(StrBuf *out); /* tfmc.1 */
void document_bash(StrBuf *out);
void document_zsh(StrBuf *out);

void table_of_options(StrBuf *out);
void table_of_stages(StrBuf *out);
void table_of_environment(StrBuf *out);
void table_of_generate_options(StrBuf *out);
void table_of_diagnostics(StrBuf *out);
void table_of_primitives(StrBuf *out);
void table_of_ops(StrBuf *out);
void table_of_passes(StrBuf *out);

/* The words that an option takes, a space between each: of a CHOICE, or the instruction sets; "" if they are not known. */
const char *option_words(Arena *arena, Option option);
/* Whether it names a file or folder. */
bool option_names_file(Option option);

#endif

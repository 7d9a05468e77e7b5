/* Documents that tfmc writes from its tables, besides the tables themselves (tables.h). */
#ifndef TFM_CLI_DOCUMENTS_H
#define TFM_CLI_DOCUMENTS_H

#include "base/strbuf.h"
#include "cli/cli_options.h"

void document_man(StrBuf *out);
void document_bash(StrBuf *out);
void document_zsh(StrBuf *out);
void document_fish(StrBuf *out);

#endif

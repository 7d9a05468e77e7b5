/* Texts that a command reads: files, or - for standard input. */
#ifndef TFM_CLI_TEXT_FILES_H
#define TFM_CLI_TEXT_FILES_H

#include "cli/session.h"

/* As messages name it: "<stdin>" for -. */
const char *text_file_name(const char *path);
/* Reads the whole text. False after an error; a text of more than `most` bytes is one, of the kind `code`. */
bool text_file_read(Session *session, const char *path, size_t most, DiagCode code, StrBuf *text);

#endif

/* InFile: a regular file that is read piece by piece, with pread.
 *
 * Nothing is mapped: a file that is truncated while it is read gives an error, not a signal. A file replaced by a rename
 * stays readable as it was. Refuses what is no regular file (folders, pipes, devices). */
#ifndef TFM_WEIGHTS_IN_FILE_H
#define TFM_WEIGHTS_IN_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "diag/diag.h"

typedef struct InFile {
  int fd; /* -1: not open */
  int64_t size;
  const char *path; /* as the user gave it; the place of messages */
} InFile;

/* False after an error (DIAG_FILE). A symbolic link as the last part of the path is followed only if asked for. */
bool in_file_open(InFile *file, Diag *diag, const char *path, bool follow_link);
/* False after an error: exactly `size` bytes from `offset` on, or nothing. */
bool in_file_read(const InFile *file, Diag *diag, int64_t offset, void *bytes, size_t size);
void in_file_close(InFile *file);
bool is_symbolic_link(const char *path);
/* Whether both paths name the same existing file. */
bool same_file(const char *a, const char *b);

#endif

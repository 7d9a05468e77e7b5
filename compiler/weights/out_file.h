/* OutFile: a file that appears under its name complete or not at all.
 *
 * What is written goes to a file without a name in the target's folder (one with a hidden name where the file system has
 * no such files); out_file_commit makes it durable and puts it in the place of the target in one step. Whoever is killed,
 * runs out of space or gives up leaves the target as it was. A target that exists keeps its permissions; if it is a
 * symbolic link, the file that it leads to is replaced. Every error is reported once (DIAG_FILE). */
#ifndef TFM_WEIGHTS_OUT_FILE_H
#define TFM_WEIGHTS_OUT_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "diag/diag.h"

typedef struct OutFile {
  Diag *diag;
  const char *path;   /* as the user gave it */
  const char *target; /* where it leads to */
  const char *folder; /* of the target */
  const char *temporary; /* NULL: the file has no name */
  int fd;
  bool failed;
  unsigned permissions; /* what the file gets; 0, as out_file_open leaves it: those of the target, else what the umask says */
  size_t n_buffered;
  unsigned char buffer[1 << 16];
} OutFile;

/* Whether out_file_open would work: the folder exists and can be written to, the target is no folder. For commands that
 * want to know before long work. False after an error. */
bool out_file_check(Diag *diag, const char *path);
bool out_file_open(OutFile *file, Diag *diag, const char *path);
/* Buffered; after an error nothing more is written. */
void out_file_write(OutFile *file, const void *bytes, size_t size);
/* Ends writing. False after an error, this one or an earlier one; then nothing has changed. */
bool out_file_commit(OutFile *file);
/* Ends writing and leaves nothing behind. */
void out_file_abandon(OutFile *file);

#endif

/* Files: how the compiler reads and writes regular files, so that nothing which happens to them meanwhile does harm.
 *
 * In: a path. Out: bytes, or a file that appears under its name complete or not at all. Refuses folders, pipes and
 * devices: a pipe could block for ever, and a device may have no end. Every error is reported once (DIAG_FILE). The
 * caller owns the structs; paths and names that they refer to live in the arena of the diag. */
#ifndef TFM_WEIGHTS_FILES_H
#define TFM_WEIGHTS_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "diag/diag.h"

// ---- reading ----

/* A file that is read piece by piece, with pread. It is not mapped: a file that is truncated while it is read must
 * give an error, not a signal. One that is replaced by a rename stays readable as it was. */
typedef struct InFile {
  int fd; /* -1: not open */
  int64_t size;
  int64_t from;     /* where it begins in the file; 0 unless it is a part of one */
  const char *path; /* as the user gave it; the place of messages */
} InFile;

/* Opens a regular file; symbolic links to one are followed. False after an error. */
bool in_file_open(InFile *file, Diag *diag, const char *path);
/* Reads exactly `size` bytes from `offset` on. False after an error, which includes a file that has become shorter. The
 * caller has checked `size` against the file's before it allocated. */
bool in_file_read(const InFile *file, Diag *diag, int64_t offset, void *bytes, size_t size);
void in_file_close(InFile *file);
/* A part of an open file, read as if it were a file; the caller has checked that it lies within, and closes the
 * whole. */
InFile in_file_part(const InFile *file, int64_t from, int64_t size);
/* The whole text of a file, `size` bytes and a NUL, in the arena of the diag. NULL after an error: also, of `code`, if
 * it has more bytes than `most`, which is looked at before memory is allocated for it. */
char *in_file_text(Diag *diag, const char *path, int64_t most, DiagCode code, size_t *size);
/* Whether both paths name the same existing file. */
bool same_file(const char *a, const char *b);

// ---- writing ----

/* What is written goes to a nameless file in the target's folder (one with a hidden name where the file system has no
 * nameless files); out_file_commit makes it durable and renames it over the target in one step. A process that is
 * killed, runs out of space or gives up leaves the target as it was. An existing target keeps its permissions. If it
 * is a symbolic link, the file that the link leads to is replaced. */
typedef struct OutFile {
  Diag *diag;
  const char *path;   /* as the user gave it */
  const char *target; /* where it leads to */
  const char *folder; /* of the target */
  const char *temporary; /* NULL: the file has no name */
  int fd;
  bool failed;
  unsigned permissions; /* of the new file; 0 (the default): those of the target, else what umask allows */
  size_t n_buffered;
  unsigned char buffer[1 << 16];
} OutFile;

/* Whether out_file_open would work: the folder exists and is writable, the target is no folder. A command should
 * call it
 * before long work, so that the user need not wait to learn that the result cannot be written. False after an error. */
bool out_file_check(Diag *diag, const char *path);
bool out_file_open(OutFile *file, Diag *diag, const char *path);
/* Writes through a buffer. After an error it does nothing, so that only the commit needs to be checked. */
void out_file_write(OutFile *file, const void *bytes, size_t size);
/* Ends writing. False if there was an error now or earlier; then the target is as it was. */
bool out_file_commit(OutFile *file);
/* Ends writing; nothing is left behind. */
void out_file_abandon(OutFile *file);

#endif

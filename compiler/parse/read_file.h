/* Reading the files of a program. Inside parse only.
 *
 * Refuses folders, FIFOs, devices, files over PARSE_MAX_SIZE (by their size, before reading), and below a root folder
 * whatever lies outside of it, also by `..` or a symbolic link. */
#ifndef TFM_PARSE_READ_FILE_H
#define TFM_PARSE_READ_FILE_H

#include "parse/parser.h"

typedef struct FileText {
  const char *text; /* `size` bytes and a NUL; NULL after a fault */
  uint32_t size;
  const char *fault; /* "Is a directory" */
  bool is_too_long;  /* the fault is that */
} FileText;

/* The file that the user named. */
FileText read_main_file(Arena *arena, const char *path);
/* A file below the folder `root`; `resolved` is its path there, free of links and `..`. */
FileText read_file_below(Arena *arena, const char *root, const char *resolved);
/* The real path of a file, in the arena; NULL, and `*fault`, if there is none. */
const char *resolve_path(Arena *arena, const char *path, const char **fault);
/* What stands after `root` in a real path; NULL if it lies elsewhere. */
const char *path_below(const char *root, const char *resolved);

#endif

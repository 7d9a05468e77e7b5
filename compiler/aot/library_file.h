/* LibraryFile: what a compiled library says of itself, read without loading it: nothing in the file is run.
 *
 * In: the path of a library or object made by `tfmc compile`, or a description that was found in another file; neither
 * is trusted. Out: what it says, in the arena. Refuses files that are neither 64-bit little-endian ELF nor modules,
 * sections that reach beyond the file or are larger than any of ours, and files without a description of ours. */
#ifndef TFM_AOT_LIBRARY_FILE_H
#define TFM_AOT_LIBRARY_FILE_H

#include <jansson.h>

#include "weights/files.h"

// ---- sections ----

/* Whether the file can be read and begins with these bytes, 8 at most. Reports nothing. */
bool file_begins_with(Arena *arena, const char *path, const char *bytes, size_t n);
/* Whether the file is of a kind that libraries are: ELF, or a WebAssembly module. */
bool is_library_file(Arena *arena, const char *path);
/* Returns the bytes of the section and a NUL; NULL after an error, or if there is no such section. */
const char *elf_section(Arena *arena, Diag *diag, const InFile *file, const char *name, size_t *size);

// ---- descriptions ----

#define LIBRARY_SECTION ".tfm"        /* holds the description and a NUL */
#define LIBRARY_SECTION_OF_MODULES "tfm" /* a custom section, which holds the same */

typedef struct LibraryFile {
  const char *path;
  const char *prefix;            /* of its functions */
  const char *version;           /* of the tfmc that made it */
  const char **instruction_sets; /* the best first */
  uint32_t n_instruction_sets;
  uint8_t layout[16];
  uint64_t weights_bytes;
  bool weights_embedded;
  bool is_one_file;          /* a .tfmm file: what it is opened by is not the system's loader */
  bool is_incremental;       /* it generates, and caches what it computed for earlier tokens */
  const json_t *description; /* all of it; library_file_close releases it */
} LibraryFile;

/* NULL after an error; otherwise the caller must close it. */
LibraryFile *library_file_open(Arena *arena, Diag *diag, const char *path);
/* The same of a description that was found in `path`; NULL text: there was none. */
LibraryFile *library_file_read(Arena *arena, Diag *diag, const char *path, const char *text);
void library_file_close(LibraryFile *library); /* NULL is ignored */

/* A layout as 32 hexadecimal digits. */
const char *layout_text(Arena *arena, const uint8_t layout[16]);

#endif

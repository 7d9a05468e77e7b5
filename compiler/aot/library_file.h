/* LibraryFile: what a compiled library says of itself, read without loading it.
 *
 * In: the path of a library or object made by `tfmc compile`. Out: its description. Refuses other ELF files. */
#ifndef TFM_AOT_LIBRARY_FILE_H
#define TFM_AOT_LIBRARY_FILE_H

#include <jansson.h>

#include "diag/diag.h"

#define LIBRARY_SECTION ".tfm" /* holds the description and a NUL */

typedef struct LibraryFile {
  const char *path;
  const char *prefix;            /* of its functions */
  const char *version;           /* of the tfmc that made it */
  const char **instruction_sets; /* the best first */
  uint32_t n_instruction_sets;
  uint8_t layout[16];
  uint64_t weights_bytes;
  bool weights_embedded;
  bool is_incremental; /* it writes, and keeps what it computed for earlier tokens */
  const json_t *description; /* all of it; library_file_close releases it */
} LibraryFile;

/* NULL after an error; else library_file_close when done. */
LibraryFile *library_file_open(Arena *arena, Diag *diag, const char *path);
void library_file_close(LibraryFile *library); /* NULL is ignored */

/* A layout as 32 hexadecimal digits. */
const char *layout_text(Arena *arena, const uint8_t layout[16]);

#endif

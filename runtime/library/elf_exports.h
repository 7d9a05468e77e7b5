/* What a shared library exports, read from the file without loading it. */
#ifndef TFM_RUNTIME_ELF_EXPORTS_H
#define TFM_RUNTIME_ELF_EXPORTS_H

#include "error.h"

/* The only function exported by the library at `path` whose name ends with `suffix`; its name is to be freed. A file
 * that is no whole library for this machine is refused: the loader would crash on one that was cut off. */
tfm_status elf_find_export(const char *path, const char *suffix, char **name, tfm_error *error);

#endif

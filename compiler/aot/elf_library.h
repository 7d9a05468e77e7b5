/* ELF library: a shared library made of objects and the runtime, without a linker.
 *
 * In: objects, the prefix of what is exported, a soname. Out: the bytes of the library, in the arena: one segment of
 * code and constants, one of pointers that are read-only once the library is loaded, and data; the sections that the
 * system's linker would keep, with the same exports, bound to the same versions of the system's functions. Equal input
 * gives equal bytes. Refused: what elf_objects.h refuses, other kinds of relocations, and distances over 2 GB. */
#ifndef TFM_AOT_ELF_LIBRARY_H
#define TFM_AOT_ELF_LIBRARY_H

#include "aot/link.h"

/* NULL data after an error. */
Bytes elf_library(Arena *arena, Diag *diag, const char *prefix, const char *soname, const Bytes *objects,
                  size_t n_objects);

#endif

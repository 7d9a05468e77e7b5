/* A section of an ELF file, by its name, without loading the file: nothing in it is run.
 *
 * In: a 64-bit little-endian ELF file, a library or an object. Out: the bytes of the section. Refuses offsets and sizes
 * that lie outside of the file. */
#ifndef TFM_AOT_ELF_SECTION_H
#define TFM_AOT_ELF_SECTION_H

#include "weights/in_file.h"

/* Whether a file can be read and begins as ELF files do. Reports nothing. */
bool is_elf_file(Arena *arena, const char *path);
/* The bytes and a NUL behind them; NULL after an error, or if there is no such section. */
const char *elf_section(Arena *arena, Diag *diag, const InFile *file, const char *name, size_t *size);

#endif

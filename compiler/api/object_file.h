/* An object file as it lies in memory, with every table found and bounded. Inside objects only. */
#ifndef TFM_API_OBJECT_FILE_H
#define TFM_API_OBJECT_FILE_H

#include <elf.h>

#include "api/objects.h"

typedef struct ObjectFile {
  const Object *object;
  const Elf64_Shdr *sections;
  uint32_t n_sections;
  const Elf64_Sym *symbols;
  uint32_t n_symbols;
  const char *names; /* of the symbols; ends with a NUL */
  size_t names_size;
  char **addresses;  /* of the sections in this process; NULL: not loaded */
} ObjectFile;

/* False: it is no object of this kind, or it is broken. `addresses` is not touched. */
bool object_file_read(const Object *object, ObjectFile *file);
/* Whether a section has bytes that the program needs. Tables for unwinding are not among them. */
bool section_is_loaded(const Elf64_Shdr *section);
bool section_is_code(const Elf64_Shdr *section);
/* The table at a section, whose entries have `size` bytes; NULL if it does not lie within the file. */
const void *section_table(const ObjectFile *file, const Elf64_Shdr *section, size_t size);
/* NULL after a bad offset. */
const char *symbol_name(const ObjectFile *file, const Elf64_Sym *symbol);

#endif

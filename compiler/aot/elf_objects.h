/* ELF objects: what a linker reads. Objects and archives of objects are taken apart into sections; symbols are looked
 * up; the sections that some symbol needs are found.
 *
 * In: objects that LLVM made in this process and the archive of the runtime, which the build made: they are trusted to
 * be whole. Out: the sections that are needed, in the order of the objects, and for each relocation what it refers to.
 * Refused, by name: objects of several machines, what nothing defines, and sections that a library of ours never has
 * (thread-local data, constructors). Everything lives in the arena, and refers to the bytes that were given. */
#ifndef TFM_AOT_ELF_OBJECTS_H
#define TFM_AOT_ELF_OBJECTS_H

#include <elf.h>
#include <stdbool.h>

#include "aot/link.h"
#include "base/map.h"
#include "tfm/abi/cpu.h"
#include "base/vec.h"

typedef struct ElfSection {
  const struct ElfObject *object;
  const Elf64_Shdr *header;
  const char *name;
  const Elf64_Rela *relocations;
  size_t n_relocations;
  bool is_needed;
  uint64_t address; /* in the library, once it has its place */
} ElfSection;

/* A function or an object of the system's libraries. */
typedef struct ElfOutside {
  const char *name, *library, *version;
  uint32_t symbol; /* its number in the library that is made; 0: it is not needed */
} ElfOutside;

/* What a symbol stands for: a place in a section, or a function outside. Neither: nothing defines it. */
typedef struct ElfTarget {
  ElfSection *section;
  uint64_t value;
  ElfOutside *outside;
} ElfTarget;

typedef struct ElfObject {
  const char *data;
  const Elf64_Sym *symbols;
  uint32_t n_symbols, n_sections;
  const char *names; /* of the symbols */
  ElfSection *sections;
} ElfObject;

/* A symbol that other objects see. */
typedef struct ElfDefinition {
  ElfTarget target;
  const Elf64_Sym *symbol;
} ElfDefinition;

typedef struct ElfObjects {
  Arena *arena;
  Diag *diag;
  VEC(ElfObject *) items;
  uint16_t machine;         /* e_machine of all of them, which is that of a family */
  tfm_family family;
  uint32_t flags;           /* e_flags: how floats are passed, where the machine has several ways */
  Map definitions;          /* ElfDefinition by name */
  Map outside;              /* ElfOutside by name */
  VEC(ElfSection *) needed; /* in the order in which they were found */
} ElfObjects;

/* Nothing yet. */
ElfObjects elf_objects_new(Arena *arena, Diag *diag);
/* Adds an object; those of one library are for one kind of machine. False after an error. */
bool elf_objects_add(ElfObjects *objects, Bytes bytes);
/* Adds the runtime for the machine of the objects, and what it takes of the system. Of definitions with the same name
 * the first one counts, so objects come before. False after an error. */
bool elf_objects_add_runtime(ElfObjects *objects);
/* Marks a section and all that it refers to. False after an error. */
bool elf_objects_need(ElfObjects *objects, ElfSection *section);
/* What a relocation of a section refers to. */
ElfTarget elf_target(const ElfObjects *objects, const ElfSection *section, const Elf64_Rela *relocation);

#endif

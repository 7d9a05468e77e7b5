/* The library while it is made: elf_library_layout.c chooses and places what goes in, elf_library.c
 * writes it. */
#ifndef TFM_AOT_ELF_LIBRARY_LAYOUT_H
#define TFM_AOT_ELF_LIBRARY_LAYOUT_H

#include "aot/elf_objects.h"
#include "base/strbuf.h"
#include "target/relocations.h"

enum { BLOOM_WORDS = 4, BLOOM_SHIFT = 6, N_SEGMENTS = 6 };

/* The sections of the library, in their order. Up to DESCRIPTION they are read-only, up to GOT once it is loaded. */
typedef enum Part {
  HASH,
  SYMBOLS,
  TEXTS,
  VERSIONS,
  NEEDS,
  RELOCATIONS,
  STUBS,
  CODE,
  CONSTANTS,
  FRAME_TABLE,
  FRAMES,
  DESCRIPTION,
  POINTERS,
  DYNAMIC,
  GOT,
  DATA,
  ZEROES,
  NAMES,
  N_PARTS
} Part;

typedef struct Export {
  const char *name;
  const ElfDefinition *definition;
  uint32_t hash, bucket; /* of the hash table */
} Export;

typedef struct Version { /* of a library of the system; its number is its index + FIRST_VERSION */
  const char *library, *name;
} Version;

/* How the caller of a function is found (its FDE): 4 bytes length, 4 of what it has in common with others, then where
 * the function begins. */
typedef struct Frame {
  uint32_t offset; /* in l->frames */
  ElfTarget function;
} Frame;

enum { FRAME_COMMON = 4, FRAME_BEGIN = 8, FRAME_TABLE_HEAD = 12, FRAME_TABLE_ROW = 8 };

typedef struct Linker {
  Arena *arena;
  Diag *diag;
  ElfObjects objects;
  const LibraryRelocations *types;
  VEC(Export) exports; /* by bucket of the hash table */
  VEC(Version) versions;
  VEC(const char *) libraries;
  VEC(ElfTarget) own_slots; /* of the GOT, behind those of the functions outside */
  VEC(Elf64_Rela) relative, symbolic;
  VEC(Elf64_Sym) symbols;
  VEC(Elf64_Half) symbol_versions;
  VEC(Elf64_Dyn) dynamic;
  uint32_t n_outside;
  size_t n_pointers; /* relocations that the dynamic linker has to do for pointers */
  VEC(Frame) frame_list;
  StrBuf texts, needs, names, frames;
  Elf64_Shdr out[N_PARTS];
  uint64_t code_end, pointers_offset, data_offset, data_end, headers_offset, file_bytes; /* in the file */
  uint64_t shift;      /* from the offset of what can be written to its address */
  uint64_t memory_end; /* an address */
  char *file;
} Linker;

/* Where a section of an object goes. */
Part linked_part(const ElfSection *section);
/* A part without bytes is left out. */
bool linked_part_exists(const Linker *l, Part part);
/* The number of a part among the sections; of what is left out, data and zeroes alone, the number of the next one. */
uint32_t linked_part_number(const Linker *l, Part part);
/* Which slot of the GOT a target has. */
uint64_t linked_slot(Linker *l, const ElfTarget *target);

/* Everything but the bytes of l->file. False after an error. */
bool linked_lay_out(Linker *l, const char *prefix, const char *soname, const Bytes *objects, size_t n_objects);

#endif

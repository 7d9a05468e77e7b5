#include "aot/elf_section.h"

#include <elf.h>
#include <string.h>

enum { MOST_SECTIONS = 65536, MOST_BYTES = 256 << 20, MOST_NAMES = 16 << 20 };

bool is_elf_file(Arena *arena, const char *path) {
  Diag silent = diag_new(arena);
  InFile file;
  char magic[SELFMAG];
  if (!in_file_open(&file, &silent, path, true)) return false;
  bool is_elf =
      file.size >= SELFMAG && in_file_read(&file, &silent, 0, magic, SELFMAG) && memcmp(magic, ELFMAG, SELFMAG) == 0;
  in_file_close(&file);
  return is_elf;
}

/* `size` bytes from `offset` on and a NUL; NULL if they are too many or not in the file. */
static char *read_range(Arena *arena, Diag *diag, const InFile *file, uint64_t offset, uint64_t size, uint64_t most) {
  uint64_t end = (uint64_t)file->size;
  if (size > most || offset > end || size > end - offset) return NULL;
  char *bytes = arena_alloc(arena, size + 1);
  return in_file_read(file, diag, (int64_t)offset, bytes, size) ? bytes : NULL;
}

const char *elf_section(Arena *arena, Diag *diag, const InFile *file, const char *name, size_t *size) {
  const char *head = read_range(arena, diag, file, 0, sizeof(Elf64_Ehdr), sizeof(Elf64_Ehdr));
  if (!head) return NULL;
  Elf64_Ehdr elf;
  memcpy(&elf, head, sizeof elf);
  bool readable = elf.e_ident[EI_CLASS] == ELFCLASS64 && elf.e_ident[EI_DATA] == ELFDATA2LSB &&
                  elf.e_shentsize == sizeof(Elf64_Shdr) && elf.e_shstrndx < elf.e_shnum;
  if (!readable) return NULL;
  uint64_t table_bytes = (uint64_t)elf.e_shnum * sizeof(Elf64_Shdr);
  const char *table = read_range(arena, diag, file, elf.e_shoff, table_bytes, MOST_SECTIONS * sizeof(Elf64_Shdr));
  if (!table) return NULL;
  Elf64_Shdr *sections = arena_copy(arena, table, table_bytes);
  const Elf64_Shdr *texts = &sections[elf.e_shstrndx];
  const char *names = read_range(arena, diag, file, texts->sh_offset, texts->sh_size, MOST_NAMES);
  for (uint32_t i = 0; names && i < elf.e_shnum; i++) {
    const Elf64_Shdr *section = &sections[i];
    if (section->sh_name >= texts->sh_size || strcmp(names + section->sh_name, name) != 0) continue;
    *size = section->sh_size;
    return section->sh_type == SHT_NOBITS
               ? NULL
               : read_range(arena, diag, file, section->sh_offset, section->sh_size, MOST_BYTES);
  }
  return NULL;
}

#include "api/object_file.h"

#include <string.h>

/* `count` entries of `size` bytes at `offset`. */
static bool is_within(const Object *object, uint64_t offset, uint64_t count, uint64_t size) {
  uint64_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || offset > object->size) return false;
  return bytes <= object->size - offset;
}

const void *section_table(const ObjectFile *file, const Elf64_Shdr *section, size_t size) {
  if (section->sh_offset % 8 || section->sh_size % size) return NULL;
  if (!is_within(file->object, section->sh_offset, section->sh_size, 1)) return NULL;
  return file->object->data + section->sh_offset;
}

bool section_is_loaded(const Elf64_Shdr *section) {
  return section->sh_flags & SHF_ALLOC && (section->sh_type == SHT_PROGBITS || section->sh_type == SHT_NOBITS);
}

bool section_is_code(const Elf64_Shdr *section) { return section->sh_flags & SHF_EXECINSTR; }

static bool is_our_kind(const Object *object) {
  static const unsigned char ident[] = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT};
  if (object->size < sizeof(Elf64_Ehdr)) return false;
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)object->data;
  return memcmp(header->e_ident, ident, sizeof ident) == 0 && header->e_type == ET_REL && header->e_machine == EM_X86_64 &&
         header->e_shentsize == sizeof(Elf64_Shdr) && header->e_shoff % 8 == 0 &&
         is_within(object, header->e_shoff, header->e_shnum, sizeof(Elf64_Shdr));
}

static bool read_symbols(ObjectFile *file, const Elf64_Shdr *section) {
  file->symbols = section_table(file, section, sizeof(Elf64_Sym));
  if (!file->symbols || section->sh_link >= file->n_sections || section->sh_size > UINT32_MAX) return false;
  file->n_symbols = (uint32_t)(section->sh_size / sizeof(Elf64_Sym));
  const Elf64_Shdr *names = &file->sections[section->sh_link];
  if (names->sh_type != SHT_STRTAB || !names->sh_size) return false;
  if (!is_within(file->object, names->sh_offset, names->sh_size, 1)) return false;
  file->names = file->object->data + names->sh_offset;
  file->names_size = names->sh_size;
  return file->names[file->names_size - 1] == '\0';
}

/* Bytes within the file, and an alignment that a page satisfies. */
static bool section_is_sound(const ObjectFile *file, const Elf64_Shdr *section) {
  uint64_t alignment = section->sh_addralign;
  if (alignment > 4096 || (alignment & (alignment - 1))) return false;
  return section->sh_type == SHT_NOBITS ? section->sh_size <= INT32_MAX
                                        : is_within(file->object, section->sh_offset, section->sh_size, 1);
}

bool object_file_read(const Object *object, ObjectFile *file) {
  *file = (ObjectFile){.object = object, .addresses = file->addresses};
  if (!is_our_kind(object)) return false;
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)object->data;
  file->sections = (const Elf64_Shdr *)(const void *)(object->data + header->e_shoff);
  file->n_sections = header->e_shnum;
  for (uint32_t i = 0; i < file->n_sections; i++) {
    const Elf64_Shdr *section = &file->sections[i];
    if (section_is_loaded(section) && !section_is_sound(file, section)) return false;
    if (section->sh_type == SHT_SYMTAB && !read_symbols(file, section)) return false;
  }
  return file->symbols != NULL;
}

const char *symbol_name(const ObjectFile *file, const Elf64_Sym *symbol) {
  return symbol->st_name < file->names_size ? file->names + symbol->st_name : NULL;
}

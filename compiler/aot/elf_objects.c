/* In: objects and archives of objects. Out: their sections, and which of them are needed. See elf_objects.h. */
#include "aot/elf_objects.h"

#include <ar.h>
#include <stdlib.h>
#include <string.h>

#include "aot/runtime_archives.h"
#include "target/relocations.h"

ElfObjects elf_objects_new(Arena *arena, Diag *diag) {
  return (ElfObjects){.arena = arena, .diag = diag, .definitions = map_new(arena), .outside = map_new(arena)};
}

// ---- one object ----

/* Tables for unwinding are made anew, of what goes in (elf_library_layout.c). */
static bool is_loaded(const Elf64_Shdr *header) {
  return header->sh_flags & SHF_ALLOC && (header->sh_type == SHT_PROGBITS || header->sh_type == SHT_NOBITS);
}

/* Sections whose meaning is more than their bytes would be dropped silently. */
static bool section_is_known(ElfObjects *objects, const ElfSection *section) {
  const uint32_t type = section->header->sh_type;
  const bool is_called = type == SHT_INIT_ARRAY || type == SHT_FINI_ARRAY || strncmp(section->name, ".ctors", 6) == 0;
  if (!is_called && !(section->header->sh_flags & SHF_TLS)) return true;
  diag_error_at(objects->diag, NULL, DIAG_TOOL, "section %s needs a linker: give one with --cc", section->name);
  return false;
}

/* The symbols that other objects see. Those of the object itself stand in its own table. */
static void add_definitions(ElfObjects *objects, const ElfObject *object) {
  for (uint32_t i = 0; i < object->n_symbols; i++) {
    const Elf64_Sym *symbol = &object->symbols[i];
    const char *name = object->names + symbol->st_name;
    if (ELF64_ST_BIND(symbol->st_info) == STB_LOCAL || symbol->st_shndx == SHN_UNDEF ||
        symbol->st_shndx >= object->n_sections || map_has(&objects->definitions, name))
      continue;
    ElfDefinition *definition = ARENA_NEW(objects->arena, ElfDefinition);
    definition->symbol = symbol;
    definition->target = (ElfTarget){.section = &object->sections[symbol->st_shndx], .value = symbol->st_value};
    map_put(&objects->definitions, name, definition);
  }
}

static void add_table(ElfObject *object, const Elf64_Shdr *headers, const Elf64_Shdr *header) {
  const char *at = object->data + header->sh_offset;
  if (header->sh_type == SHT_SYMTAB) {
    object->symbols = (const Elf64_Sym *)(const void *)at;
    object->n_symbols = (uint32_t)(header->sh_size / sizeof(Elf64_Sym));
    object->names = object->data + headers[header->sh_link].sh_offset;
  } else if (header->sh_type == SHT_RELA) {
    object->sections[header->sh_info].relocations = (const Elf64_Rela *)(const void *)at;
    object->sections[header->sh_info].n_relocations = header->sh_size / sizeof(Elf64_Rela);
  }
}

/* The first object says for which machine all of them are. */
static bool is_of_machine(ElfObjects *objects, const Elf64_Ehdr *elf) {
  if (!objects->items.n) {
    objects->machine = elf->e_machine;
    objects->family = family_of_elf(elf->e_machine);
    objects->flags = elf->e_flags;
  }
  if (elf->e_machine == objects->machine && elf->e_flags == objects->flags) return true;
  if (elf->e_machine == objects->machine)
    diag_error_at(objects->diag, NULL, DIAG_TOOL,
                  "code that passes arguments in another way (flags %#x, not %#x) needs a linker: give one with --cc",
                  elf->e_flags, objects->flags);
  else
    diag_error_at(objects->diag, NULL, DIAG_TOOL,
                  "code for another machine (%u, not %u) needs a linker: give one with --cc", elf->e_machine,
                  objects->machine);
  return false;
}

bool elf_objects_add(ElfObjects *objects, Bytes bytes) {
  ElfObject *object = ARENA_NEW(objects->arena, ElfObject);
  const Elf64_Ehdr *elf = bytes.data;
  if (!is_of_machine(objects, elf)) return false;
  object->data = bytes.data;
  const Elf64_Shdr *headers = (const Elf64_Shdr *)(const void *)(object->data + elf->e_shoff);
  const char *names = object->data + headers[elf->e_shstrndx].sh_offset;
  object->n_sections = elf->e_shnum;
  object->sections = ARENA_ARRAY(objects->arena, ElfSection, elf->e_shnum);
  for (uint32_t i = 0; i < elf->e_shnum; i++) {
    ElfSection *section = &object->sections[i];
    section->object = object;
    section->header = &headers[i];
    section->name = names + headers[i].sh_name;
    if (!section_is_known(objects, section)) return false;
  }
  for (uint32_t i = 0; i < elf->e_shnum; i++) add_table(object, headers, &headers[i]);
  vec_push(objects->arena, &objects->items, object);
  if (object->symbols) add_definitions(objects, object);
  return true;
}

// ---- archives ----

/* A member begins at any even byte of the archive; a copy has the alignment that its tables need. Members whose name
 * begins with a slash and nothing else before the blank are tables of the archive itself. */
static bool add_archive(ElfObjects *objects, Bytes archive) {
  const char *at = archive.data, *end = at + archive.size;
  at += SARMAG;
  while ((size_t)(end - at) > sizeof(struct ar_hdr)) {
    struct ar_hdr header;
    memcpy(&header, at, sizeof header);
    const size_t size = strtoul(header.ar_size, NULL, 10);
    at += sizeof header;
    const bool is_table = header.ar_name[0] == '/' && strchr(" /", header.ar_name[1]);
    if (!is_table && !elf_objects_add(objects, (Bytes){arena_copy(objects->arena, at, size), size})) return false;
    at += size + size % 2;
  }
  return true;
}

bool elf_objects_add_runtime(ElfObjects *objects) {
  RuntimeArchive runtime;
  if (!runtime_of_family(objects->diag, objects->family, &runtime)) return false;
  for (const char *const(*row)[3] = runtime.outside; (*row)[0]; row++) {
    ElfOutside *outside = ARENA_NEW(objects->arena, ElfOutside);
    *outside = (ElfOutside){.name = (*row)[0], .library = (*row)[1], .version = (*row)[2]};
    map_put(&objects->outside, outside->name, outside);
  }
  return add_archive(objects, runtime.objects);
}

// ---- what is needed ----

ElfTarget elf_target(const ElfObjects *objects, const ElfSection *section, const Elf64_Rela *relocation) {
  const ElfObject *object = section->object;
  const Elf64_Sym *symbol = &object->symbols[ELF64_R_SYM(relocation->r_info)];
  if (symbol->st_shndx != SHN_UNDEF && symbol->st_shndx < object->n_sections)
    return (ElfTarget){.section = &object->sections[symbol->st_shndx], .value = symbol->st_value};
  const char *name = object->names + symbol->st_name;
  const ElfDefinition *definition = map_get(&objects->definitions, name);
  return definition ? definition->target : (ElfTarget){.outside = map_get(&objects->outside, name)};
}

static void mark(ElfObjects *objects, ElfSection *section) {
  if (section->is_needed) return;
  section->is_needed = true;
  vec_push(objects->arena, &objects->needed, section);
}

static bool refuse_symbol(ElfObjects *objects, const ElfSection *section, const Elf64_Rela *relocation) {
  const Elf64_Sym *symbol = &section->object->symbols[ELF64_R_SYM(relocation->r_info)];
  diag_error_at(objects->diag, NULL, DIAG_TOOL,
                "nothing defines '%s', which the library needs: a linker may, with --cc",
                section->object->names + symbol->st_name);
  return false;
}

/* The vector grows while it is walked. */
bool elf_objects_need(ElfObjects *objects, ElfSection *first) {
  size_t next = objects->needed.n;
  mark(objects, first);
  for (; next < objects->needed.n; next++) {
    const ElfSection *section = objects->needed.items[next];
    for (size_t i = 0; i < section->n_relocations; i++) {
      const ElfTarget target = elf_target(objects, section, &section->relocations[i]);
      if (target.section && is_loaded(target.section->header))
        mark(objects, target.section);
      else if (target.outside)
        target.outside->symbol = 1;
      else
        return refuse_symbol(objects, section, &section->relocations[i]);
    }
  }
  return true;
}

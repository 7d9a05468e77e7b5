/* In: objects. Out: one object. See elf_merge.h.
 *
 * 1. Sections of one name become one, and each of theirs gets its place in it. 2. Symbols: a section each, those that
 * an object keeps to itself, those that others see. 3. Relocations refer to the new symbols. 4. The file is made. */
#include "aot/elf_merge.h"

#include <string.h>

#include "aot/elf_objects.h"
#include "base/check.h"

typedef struct MergedSection {
  Elf64_Shdr header; /* of the first one of this name */
  uint32_t number;   /* 0 is none */
  const char *name;
  StrBuf bytes;
  VEC(Elf64_Rela) relocations;
} MergedSection;

typedef struct Merge {
  Arena *arena;
  ElfObjects objects;
  const char *ending;
  Map by_name; /* MergedSection */
  VEC(MergedSection *) sections;
  VEC(Elf64_Sym) symbols;
  uint32_t n_local;
  Map seen_by_others; /* number of the symbol, by its name without the ending */
  StrBuf names;       /* of symbols and sections */
} Merge;

static uint32_t add_name(Merge *m, const char *name, const char *ending) {
  const uint32_t at = (uint32_t)m->names.length;
  strbuf_printf(&m->names, "%s%s", name, ending);
  strbuf_add_char(&m->names, '\0');
  return at;
}

// ---- 1. sections ----

/* What a linker reads as a list; each other one says something of the whole object and stands once. */
static bool is_joined(const Elf64_Shdr *header) { return header->sh_flags & SHF_ALLOC; }

/* Tables are made anew. Names that LLVM lists for linkers that fold equal functions are numbers of its own table. */
static bool is_kept(const Elf64_Shdr *header) {
  if (is_joined(header)) return true;
  return header->sh_type == SHT_RISCV_ATTRIBUTES || (header->sh_type == SHT_PROGBITS && !header->sh_size);
}

static MergedSection *section_named(Merge *m, const ElfSection *section) {
  MergedSection *merged = map_get(&m->by_name, section->name);
  if (merged) return merged;
  merged = ARENA_NEW(m->arena, MergedSection);
  *merged = (MergedSection){.header = *section->header, .name = section->name, .bytes = strbuf_new(m->arena)};
  map_put(&m->by_name, section->name, merged);
  vec_push(m->arena, &m->sections, merged);
  merged->number = (uint32_t)m->sections.n;
  return merged;
}

static void pad(StrBuf *bytes, uint64_t alignment) {
  while (alignment && bytes->length % alignment) strbuf_add_char(bytes, '\0');
}

static void join(Merge *m, ElfSection *section) {
  const Elf64_Shdr *header = section->header;
  if (!is_kept(header)) return;
  const bool is_first = !map_has(&m->by_name, section->name);
  MergedSection *merged = section_named(m, section);
  CHECK(header->sh_type == merged->header.sh_type && header->sh_type != SHT_NOBITS &&
            header->sh_flags == merged->header.sh_flags && header->sh_entsize == merged->header.sh_entsize,
        "sections %s of several kinds", section->name);
  if (!is_first && !is_joined(header)) return;
  if (header->sh_addralign > merged->header.sh_addralign) merged->header.sh_addralign = header->sh_addralign;
  pad(&merged->bytes, header->sh_addralign);
  section->address = merged->bytes.length;
  strbuf_add_n(&merged->bytes, section->object->data + header->sh_offset, header->sh_size);
}

// ---- 2. symbols ----

static uint32_t section_number(const Merge *m, const ElfSection *section) {
  const MergedSection *merged = map_get(&m->by_name, section->name);
  return merged ? merged->number : SHN_UNDEF;
}

static uint32_t add_symbol(Merge *m, const ElfObject *object, const Elf64_Sym *symbol, const char *ending) {
  Elf64_Sym copy = *symbol;
  copy.st_name = add_name(m, object->names + symbol->st_name, ending);
  if (symbol->st_shndx != SHN_UNDEF && symbol->st_shndx < object->n_sections) {
    const ElfSection *section = &object->sections[symbol->st_shndx];
    copy.st_shndx = (uint16_t)section_number(m, section);
    copy.st_value += section->address;
  }
  vec_push(m->arena, &m->symbols, copy);
  return (uint32_t)m->symbols.n - 1;
}

/* The symbol of each section has the section's number. */
static void begin_symbols(Merge *m) {
  vec_push(m->arena, &m->symbols, (Elf64_Sym){0});
  for (size_t i = 0; i < m->sections.n; i++)
    vec_push(m->arena, &m->symbols,
             (Elf64_Sym){.st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION), .st_shndx = (uint16_t)(i + 1)});
}

static void add_local(Merge *m, const ElfObject *object, uint32_t *numbers) {
  for (uint32_t i = 1; i < object->n_symbols; i++) {
    const Elf64_Sym *symbol = &object->symbols[i];
    const int type = ELF64_ST_TYPE(symbol->st_info);
    if (ELF64_ST_BIND(symbol->st_info) != STB_LOCAL || type == STT_FILE) continue;
    if (type == STT_SECTION)
      numbers[i] = section_number(m, &object->sections[symbol->st_shndx]);
    else
      numbers[i] = add_symbol(m, object, symbol, "");
  }
}

/* First those that are defined, then those that are not, which another object may define. */
static void add_seen_by_others(Merge *m, const ElfObject *object, uint32_t *numbers, bool defined) {
  for (uint32_t i = 1; i < object->n_symbols; i++) {
    const Elf64_Sym *symbol = &object->symbols[i];
    const char *name = object->names + symbol->st_name;
    if (ELF64_ST_BIND(symbol->st_info) == STB_LOCAL || (symbol->st_shndx != SHN_UNDEF) != defined) continue;
    if (!map_has(&m->seen_by_others, name)) {
      const uint32_t number = add_symbol(m, object, symbol, defined ? m->ending : "");
      map_put(&m->seen_by_others, name, (void *)(uintptr_t)number);
    }
    numbers[i] = (uint32_t)(uintptr_t)map_get(&m->seen_by_others, name);
  }
}

// ---- 3. relocations ----

static void add_relocations(Merge *m, const ElfSection *section, const uint32_t *numbers) {
  MergedSection *merged = map_get(&m->by_name, section->name);
  if (!is_joined(section->header)) return;
  const ElfObject *object = section->object;
  for (size_t i = 0; i < section->n_relocations; i++) {
    Elf64_Rela relocation = section->relocations[i];
    const uint32_t number = (uint32_t)ELF64_R_SYM(relocation.r_info);
    const Elf64_Sym *symbol = &object->symbols[number];
    if (ELF64_ST_TYPE(symbol->st_info) == STT_SECTION)
      relocation.r_addend += (int64_t)object->sections[symbol->st_shndx].address;
    relocation.r_offset += section->address;
    relocation.r_info = ELF64_R_INFO((uint64_t)numbers[number], ELF64_R_TYPE(relocation.r_info));
    vec_push(m->arena, &merged->relocations, relocation);
  }
}

static void merge(Merge *m) {
  ElfObject **objects = m->objects.items.items;
  const size_t n = m->objects.items.n;
  uint32_t **numbers = ARENA_ARRAY(m->arena, uint32_t *, n); /* of the new symbols, by those of each object */
  for (size_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < objects[i]->n_sections; k++) join(m, &objects[i]->sections[k]);
  begin_symbols(m);
  for (size_t i = 0; i < n; i++) {
    numbers[i] = ARENA_ARRAY(m->arena, uint32_t, objects[i]->n_symbols + 1);
    add_local(m, objects[i], numbers[i]);
  }
  m->n_local = (uint32_t)m->symbols.n;
  for (size_t i = 0; i < n; i++) add_seen_by_others(m, objects[i], numbers[i], true);
  for (size_t i = 0; i < n; i++) add_seen_by_others(m, objects[i], numbers[i], false);
  for (size_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < objects[i]->n_sections; k++) add_relocations(m, &objects[i]->sections[k], numbers[i]);
}

// ---- 4. the file ----

typedef struct File {
  StrBuf bytes, table; /* of sections */
  uint32_t n;
} File;

static void add_section(File *file, Elf64_Shdr header, const void *bytes) {
  pad(&file->bytes, header.sh_addralign);
  header.sh_offset = file->bytes.length;
  strbuf_add_n(&file->bytes, bytes, header.sh_size);
  strbuf_add_n(&file->table, (const char *)&header, sizeof header);
  file->n++;
}

static void add_sections(Merge *m, File *file) {
  add_section(file, (Elf64_Shdr){0}, "");
  for (size_t i = 0; i < m->sections.n; i++) {
    const MergedSection *section = m->sections.items[i];
    Elf64_Shdr header = section->header;
    header.sh_name = add_name(m, section->name, "");
    header.sh_size = section->bytes.length;
    header.sh_info = header.sh_link = 0;
    add_section(file, header, section->bytes.text);
  }
}

/* `symbols`: the number of their table. */
static void add_entries(Merge *m, File *file, uint32_t symbols) {
  for (size_t i = 0; i < m->sections.n; i++) {
    const MergedSection *section = m->sections.items[i];
    if (!section->relocations.n) continue;
    const Elf64_Shdr header = {.sh_name = add_name(m, ".rela", section->name), .sh_type = SHT_RELA,
                               .sh_flags = SHF_INFO_LINK, .sh_size = section->relocations.n * sizeof(Elf64_Rela),
                               .sh_link = symbols, .sh_info = section->number, .sh_addralign = 8,
                               .sh_entsize = sizeof(Elf64_Rela)};
    add_section(file, header, section->relocations.items);
  }
}

static Bytes written(Merge *m) {
  File file = {.bytes = strbuf_new(m->arena), .table = strbuf_new(m->arena)};
  Elf64_Ehdr elf;
  memcpy(&elf, m->objects.items.items[0]->data, sizeof elf);
  strbuf_add_n(&file.bytes, (const char *)&elf, sizeof elf);
  uint32_t symbols = 1 + (uint32_t)m->sections.n;
  for (size_t i = 0; i < m->sections.n; i++) symbols += m->sections.items[i]->relocations.n != 0;
  add_sections(m, &file);
  add_entries(m, &file, symbols);
  const Elf64_Shdr of_symbols = {.sh_name = add_name(m, ".symtab", ""), .sh_type = SHT_SYMTAB,
                                 .sh_size = m->symbols.n * sizeof(Elf64_Sym), .sh_link = symbols + 1,
                                 .sh_info = m->n_local, .sh_addralign = 8, .sh_entsize = sizeof(Elf64_Sym)};
  add_section(&file, of_symbols, m->symbols.items);
  Elf64_Shdr of_names = {.sh_name = add_name(m, ".strtab", ""), .sh_type = SHT_STRTAB, .sh_addralign = 1};
  of_names.sh_size = m->names.length;
  add_section(&file, of_names, m->names.text);
  pad(&file.bytes, 8);
  elf.e_shoff = file.bytes.length;
  elf.e_shnum = (uint16_t)file.n;
  elf.e_shstrndx = (uint16_t)(symbols + 1);
  strbuf_add_n(&file.bytes, file.table.text, file.table.length);
  memcpy(file.bytes.text, &elf, sizeof elf);
  return (Bytes){file.bytes.text, file.bytes.length};
}

Bytes elf_merge(Arena *arena, Diag *diag, BytesList objects, const char *ending) {
  Merge m = {.arena = arena, .objects = elf_objects_new(arena, diag), .ending = ending, .by_name = map_new(arena),
             .seen_by_others = map_new(arena), .names = strbuf_new(arena)};
  strbuf_add_char(&m.names, '\0');
  for (size_t i = 0; i < objects.n; i++)
    if (!elf_objects_add(&m.objects, objects.items[i])) return (Bytes){0};
  merge(&m);
  return written(&m);
}

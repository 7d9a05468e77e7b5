/* In: objects, the archive of the runtime, what is exported. Out: what goes into the library, and where it lies: the
 * two chapters below. Refuses what elf_objects.h refuses. See elf_library_layout.h. */
#include <string.h>

#include "aot/elf_library_layout.h"
#include "aot/library_file.h"

enum { FIRST_VERSION = 2 };

/* `link` is a Part, or 0 for none. */
static const struct {
  const char *name;
  uint32_t type, flags, link, alignment, entry_bytes;
} parts[N_PARTS] = {
    [HASH] = {".gnu.hash", SHT_GNU_HASH, SHF_ALLOC, SYMBOLS, 8, 0},
    [SYMBOLS] = {".dynsym", SHT_DYNSYM, SHF_ALLOC, TEXTS, 8, sizeof(Elf64_Sym)},
    [TEXTS] = {".dynstr", SHT_STRTAB, SHF_ALLOC, 0, 1, 0},
    [VERSIONS] = {".gnu.version", SHT_GNU_versym, SHF_ALLOC, SYMBOLS, 2, sizeof(Elf64_Half)},
    [NEEDS] = {".gnu.version_r", SHT_GNU_verneed, SHF_ALLOC, TEXTS, 8, 0},
    [RELOCATIONS] = {".rela.dyn", SHT_RELA, SHF_ALLOC, SYMBOLS, 8, sizeof(Elf64_Rela)},
    [STUBS] = {".plt", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0, 16, 0},
    [CODE] = {".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0, 1, 0},
    [CONSTANTS] = {".rodata", SHT_PROGBITS, SHF_ALLOC, 0, 1, 0},
    [FRAME_TABLE] = {".eh_frame_hdr", SHT_PROGBITS, SHF_ALLOC, 0, 4, 0},
    [FRAMES] = {".eh_frame", SHT_PROGBITS, SHF_ALLOC, 0, 8, 0},
    [DESCRIPTION] = {LIBRARY_SECTION, SHT_PROGBITS, SHF_ALLOC, 0, 1, 0},
    [POINTERS] = {".data.rel.ro", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 0, 1, 0},
    [DYNAMIC] = {".dynamic", SHT_DYNAMIC, SHF_ALLOC | SHF_WRITE, TEXTS, 8, sizeof(Elf64_Dyn)},
    [GOT] = {".got", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 0, 8, 8},
    [DATA] = {".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 0, 1, 0},
    [ZEROES] = {".bss", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, 0, 1, 0},
    [NAMES] = {".shstrtab", SHT_STRTAB, 0, 0, 1, 0},
};

// ---- 1. what goes in ----

static uint32_t add_text(StrBuf *buffer, const char *text) {
  const size_t offset = buffer->length;
  strbuf_add_n(buffer, text, strlen(text) + 1);
  return (uint32_t)offset;
}

static uint32_t gnu_hash(const char *name) {
  uint32_t hash = 5381;
  for (; *name; name++) hash = hash * 33 + (unsigned char)*name;
  return hash;
}

static uint32_t version_hash(const char *name) {
  uint32_t hash = 0;
  for (; *name; name++) {
    hash = (hash << 4) + (unsigned char)*name;
    hash = (hash ^ (hash & 0xf0000000) >> 24) & 0x0fffffff;
  }
  return hash;
}

Part linked_part(const ElfSection *section) {
  const uint64_t flags = section->header->sh_flags;
  if (flags & SHF_EXECINSTR) return CODE;
  if (!(flags & SHF_WRITE)) return strcmp(section->name, LIBRARY_SECTION) == 0 ? DESCRIPTION : CONSTANTS;
  if (section->header->sh_type == SHT_NOBITS) return ZEROES;
  return strncmp(section->name, ".data.rel.ro", 12) == 0 ? POINTERS : DATA;
}

/* The symbols of a bucket must stand together; within it the order is that of names, so that it is always the same. */
static int compare_exports(const void *a, const void *b) {
  const Export *x = a, *y = b;
  return x->bucket != y->bucket ? (x->bucket < y->bucket ? -1 : 1) : strcmp(x->name, y->name);
}

/* What the prefix names and the objects do not hide, and everything that it needs. */
static bool choose_exports(Linker *l, const char *prefix) {
  const size_t length = strlen(prefix);
  for (size_t i = 0; i < l->objects.definitions.n; i++) {
    const MapEntry *entry = &l->objects.definitions.items[i];
    const ElfDefinition *definition = entry->value;
    if (strncmp(entry->key, prefix, length) != 0 || entry->key[length] != '_' ||
        ELF64_ST_VISIBILITY(definition->symbol->st_other) != STV_DEFAULT)
      continue;
    vec_push(l->arena, &l->exports, (Export){entry->key, definition, gnu_hash(entry->key), 0});
    if (!elf_objects_need(&l->objects, definition->target.section)) return false;
  }
  for (size_t i = 0; i < l->exports.n; i++)
    l->exports.items[i].bucket = l->exports.items[i].hash % (uint32_t)l->exports.n;
  qsort(l->exports.items, l->exports.n, sizeof *l->exports.items, compare_exports);
  return true;
}

static uint32_t version_number(Linker *l, const ElfOutside *outside) {
  size_t i = 0;
  while (i < l->versions.n && (strcmp(l->versions.items[i].library, outside->library) != 0 ||
                               strcmp(l->versions.items[i].name, outside->version) != 0))
    i++;
  if (i == l->versions.n) vec_push(l->arena, &l->versions, (Version){outside->library, outside->version});
  return (uint32_t)i + FIRST_VERSION;
}

static void add_library(Linker *l, const char *library) {
  for (size_t i = 0; i < l->libraries.n; i++)
    if (strcmp(l->libraries.items[i], library) == 0) return;
  vec_push(l->arena, &l->libraries, library);
}

/* Functions outside come first, then what is exported; the first symbol is none. */
static void make_symbols(Linker *l) {
  vec_push(l->arena, &l->symbols, (Elf64_Sym){0});
  vec_push(l->arena, &l->symbol_versions, VER_NDX_LOCAL);
  for (size_t i = 0; i < l->objects.outside.n; i++) {
    ElfOutside *outside = l->objects.outside.items[i].value;
    if (!outside->symbol) continue;
    outside->symbol = ++l->n_outside;
    add_library(l, outside->library);
    vec_push(
        l->arena, &l->symbols,
        (Elf64_Sym){.st_name = add_text(&l->texts, outside->name), .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)});
    vec_push(l->arena, &l->symbol_versions, (Elf64_Half)version_number(l, outside));
  }
  for (size_t i = 0; i < l->exports.n; i++) {
    const Export *export = &l->exports.items[i];
    vec_push(l->arena, &l->symbols,
             (Elf64_Sym){.st_name = add_text(&l->texts, export->name),
                         .st_info = export->definition->symbol->st_info,
                         .st_size = export->definition->symbol->st_size});
    vec_push(l->arena, &l->symbol_versions, VER_NDX_GLOBAL);
  }
}

/* The versions of one library, as a list whose entries say how far the next is. */
static void add_needs(Linker *l, const char *library, bool is_last) {
  StrBuf list = strbuf_new(l->arena);
  const uint32_t name = add_text(&l->texts, library);
  vec_push(l->arena, &l->dynamic, (Elf64_Dyn){DT_NEEDED, {name}});
  uint32_t n = 0, left = 0;
  for (size_t i = 0; i < l->versions.n; i++) left += strcmp(l->versions.items[i].library, library) == 0;
  for (size_t i = 0; i < l->versions.n; i++) {
    const Version *version = &l->versions.items[i];
    if (strcmp(version->library, library) != 0) continue;
    n++;
    const Elf64_Vernaux entry = {.vna_hash = version_hash(version->name),
                                 .vna_other = (Elf64_Half)(i + FIRST_VERSION),
                                 .vna_name = add_text(&l->texts, version->name),
                                 .vna_next = n < left ? sizeof entry : 0};
    strbuf_add_n(&list, (const char *)&entry, sizeof entry);
  }
  const Elf64_Verneed head = {.vn_version = VER_NEED_CURRENT,
                              .vn_cnt = (Elf64_Half)n,
                              .vn_file = name,
                              .vn_aux = sizeof head,
                              .vn_next = is_last ? 0 : (uint32_t)(sizeof head + list.length)};
  strbuf_add_n(&l->needs, (const char *)&head, sizeof head);
  strbuf_add_n(&l->needs, list.text, list.length);
}

/* The slot of the GOT that holds an address; a new one if there is none yet. */
uint64_t linked_slot(Linker *l, const ElfTarget *target) {
  if (target->outside) return target->outside->symbol - 1;
  size_t i = 0;
  while (i < l->own_slots.n &&
         (l->own_slots.items[i].section != target->section || l->own_slots.items[i].value != target->value))
    i++;
  if (i == l->own_slots.n) vec_push(l->arena, &l->own_slots, *target);
  return l->n_outside + i;
}

static void count_relocations(Linker *l) {
  for (size_t i = 0; i < l->objects.needed.n; i++) {
    const ElfSection *section = l->objects.needed.items[i];
    for (size_t k = 0; k < section->n_relocations; k++) {
      const Relocation *row = relocation_find(l->objects.family, ELF64_R_TYPE(section->relocations[k].r_info));
      const ElfTarget target = elf_target(&l->objects, section, &section->relocations[k]);
      l->n_pointers += row && row->base == BASE_ABSOLUTE;
      if (row && row->kind == RELOCATION_SLOT) linked_slot(l, &target);
    }
  }
  l->n_pointers += l->n_outside + l->own_slots.n;
}

/* Values that are places are filled in when everything has its place (write_dynamic). */
static void make_dynamic(Linker *l, const char *soname) {
  const Elf64_Dyn entries[] = {{DT_SONAME, {add_text(&l->texts, soname)}},
                               {DT_GNU_HASH, {0}},
                               {DT_STRTAB, {0}},
                               {DT_SYMTAB, {0}},
                               {DT_STRSZ, {l->texts.length}},
                               {DT_SYMENT, {sizeof(Elf64_Sym)}},
                               {DT_RELA, {0}},
                               {DT_RELASZ, {l->n_pointers * sizeof(Elf64_Rela)}},
                               {DT_RELAENT, {sizeof(Elf64_Rela)}},
                               {DT_RELACOUNT, {0}},
                               {DT_FLAGS, {DF_BIND_NOW}},
                               {DT_FLAGS_1, {DF_1_NOW}},
                               {DT_VERNEED, {0}},
                               {DT_VERNEEDNUM, {l->libraries.n}},
                               {DT_VERSYM, {0}},
                               {DT_NULL, {0}}};
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    const Elf64_Sxword tag = entries[i].d_tag;
    const bool is_of_versions = tag == DT_VERNEED || tag == DT_VERNEEDNUM || tag == DT_VERSYM;
    /* Loaders refuse a list without entries. */
    if (l->libraries.n || !is_of_versions) vec_push(l->arena, &l->dynamic, entries[i]);
  }
}

// ---- tables for unwinding: of the functions that go in, for debuggers and profilers ----

static uint32_t word_at(const char *bytes, uint64_t offset) {
  uint32_t word;
  memcpy(&word, bytes + offset, sizeof word);
  return word;
}

/* What a function's entry says where it begins; NULL unless it is a distance in 4 bytes to code that goes in. */
static const Elf64_Rela *begin_of_frame(const Linker *l, const ElfSection *section, uint64_t at, ElfTarget *function) {
  for (size_t i = 0; i < section->n_relocations; i++) {
    const Elf64_Rela *relocation = &section->relocations[i];
    const Relocation *row = relocation_find(l->objects.family, ELF64_R_TYPE(relocation->r_info));
    if (relocation->r_offset != at + FRAME_BEGIN || !row || row->base != BASE_RELATIVE || row->width != 4) continue;
    *function = elf_target(&l->objects, section, relocation);
    function->value += (uint64_t)relocation->r_addend;
    return function->section && function->section->is_needed ? relocation : NULL;
  }
  return NULL;
}

/* The offset in l->frames of what entries have in common: equal ones of several objects stand there once. */
static uint32_t add_common(Linker *l, const char *common) {
  const size_t bytes = 4 + (size_t)word_at(common, 0);
  for (uint32_t at = 0; at + bytes <= l->frames.length; at += 4 + word_at(l->frames.text, at))
    if (memcmp(l->frames.text + at, common, bytes) == 0) return at;
  const uint32_t offset = (uint32_t)l->frames.length;
  strbuf_add_n(&l->frames, common, bytes);
  return offset;
}

/* The bytes of a section with the differences in it, which are those of addresses in one section: they are the same
 * before sections have their places. */
static const char *with_differences(const Linker *l, const ElfSection *section) {
  char *bytes = arena_copy(l->arena, section->object->data + section->header->sh_offset, section->header->sh_size);
  for (size_t i = 0; i < section->n_relocations; i++) {
    const Elf64_Rela *relocation = &section->relocations[i];
    const Relocation *row = relocation_find(l->objects.family, ELF64_R_TYPE(relocation->r_info));
    if (!row || row->base < BASE_SET) continue;
    const uint64_t value = elf_target(&l->objects, section, relocation).value + (uint64_t)relocation->r_addend;
    relocation_write(row, value, 0, bytes + relocation->r_offset);
  }
  return bytes;
}

/* Entries of a form that no compiler here makes are left out: a function without one only ends a backtrace. */
static void add_frames(Linker *l, const ElfSection *section) {
  const char *bytes = with_differences(l, section);
  for (uint64_t at = 0; at + FRAME_BEGIN + 8 <= section->header->sh_size; at += 4 + word_at(bytes, at)) {
    const uint32_t length = word_at(bytes, at), common = word_at(bytes, at + FRAME_COMMON);
    ElfTarget function;
    if (!length) return;
    if (!common || !begin_of_frame(l, section, at, &function)) continue;
    if (strcmp(bytes + at + FRAME_COMMON - common + 9, "zR") != 0) continue;
    const uint32_t to = add_common(l, bytes + at + FRAME_COMMON - common);
    const Frame frame = {(uint32_t)l->frames.length, function};
    strbuf_add_n(&l->frames, bytes + at, 4 + (size_t)length);
    const uint32_t distance = frame.offset + FRAME_COMMON - to;
    memcpy(l->frames.text + frame.offset + FRAME_COMMON, &distance, sizeof distance);
    vec_push(l->arena, &l->frame_list, frame);
  }
}

static void choose_frames(Linker *l) {
  for (size_t i = 0; i < l->objects.items.n; i++)
    for (uint32_t k = 0; k < l->objects.items.items[i]->n_sections; k++) {
      const ElfSection *section = &l->objects.items.items[i]->sections[k];
      if (strcmp(section->name, ".eh_frame") == 0 && section->header->sh_size) add_frames(l, section);
    }
}

static bool choose(Linker *l, const char *prefix, const char *soname, const Bytes *objects, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!elf_objects_add(&l->objects, objects[i])) return false;
  l->types = library_relocations(l->objects.family);
  if (!l->types) {
    diag_error_at(l->diag, NULL, DIAG_TOOL, "libraries for machine %u need a linker: give one with --cc",
                  l->objects.machine);
    return false;
  }
  if (!elf_objects_add_runtime(&l->objects) || !choose_exports(l, prefix)) return false;
  make_symbols(l);
  for (size_t i = 0; i < l->libraries.n; i++) add_needs(l, l->libraries.items[i], i + 1 == l->libraries.n);
  count_relocations(l);
  choose_frames(l);
  make_dynamic(l, soname);
  return true;
}

// ---- 2. where it lies ----

static uint64_t round_up(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

/* Calls for every section that goes in, in the order of the objects. */
static void for_each_section(Linker *l, void (*call)(Linker *l, ElfSection *section)) {
  for (size_t i = 0; i < l->objects.items.n; i++)
    for (uint32_t k = 0; k < l->objects.items.items[i]->n_sections; k++)
      if (l->objects.items.items[i]->sections[k].is_needed) call(l, &l->objects.items.items[i]->sections[k]);
}

/* Its place within its part. */
static void place_in_part(Linker *l, ElfSection *section) {
  Elf64_Shdr *part = &l->out[linked_part(section)];
  const uint64_t alignment = section->header->sh_addralign ? section->header->sh_addralign : 1;
  section->address = round_up(part->sh_size, alignment);
  part->sh_size = section->address + section->header->sh_size;
  if (alignment > part->sh_addralign) part->sh_addralign = alignment;
}

static void place_for_good(Linker *l, ElfSection *section) { section->address += l->out[linked_part(section)].sh_addr; }

static void begin_parts(Linker *l) {
  for (int i = 0; i < N_PARTS; i++) {
    l->out[i] = (Elf64_Shdr){.sh_type = parts[i].type,
                             .sh_flags = parts[i].flags,
                             .sh_link = parts[i].link ? parts[i].link + 1 : 0,
                             .sh_addralign = parts[i].alignment,
                             .sh_entsize = parts[i].entry_bytes};
  }
  l->out[SYMBOLS].sh_info = 1; /* the symbols from here on are not local */
  l->out[NEEDS].sh_info = (uint32_t)l->libraries.n;
  for_each_section(l, place_in_part);
  l->out[HASH].sh_size = 16 + BLOOM_WORDS * 8 + 8 * l->exports.n;
  l->out[SYMBOLS].sh_size = l->symbols.n * sizeof(Elf64_Sym);
  l->out[TEXTS].sh_size = l->texts.length;
  l->out[VERSIONS].sh_size = l->symbol_versions.n * sizeof(Elf64_Half);
  l->out[NEEDS].sh_size = l->needs.length;
  l->out[RELOCATIONS].sh_size = l->n_pointers * sizeof(Elf64_Rela);
  l->out[STUBS].sh_size = l->n_outside * l->types->stub_bytes;
  l->out[STUBS].sh_entsize = l->types->stub_bytes;
  l->out[FRAMES].sh_size = l->frames.length;
  l->out[FRAME_TABLE].sh_size = l->frame_list.n ? FRAME_TABLE_HEAD + l->frame_list.n * FRAME_TABLE_ROW : 0;
  l->out[DYNAMIC].sh_size = l->dynamic.n * sizeof(Elf64_Dyn);
  l->out[GOT].sh_size = (l->n_outside + l->own_slots.n) * 8;
}

/* Gives the parts from `first` to `last` their places from `offset` on, and returns where they end. Addresses are
 * `shift` bytes further on. */
static uint64_t place_parts(Linker *l, Part first, Part last, uint64_t offset, uint64_t shift) {
  for (Part i = first; i <= last; i++) {
    l->out[i].sh_offset = round_up(offset, l->out[i].sh_addralign);
    l->out[i].sh_addr = l->out[i].sh_offset + shift;
    offset = l->out[i].sh_offset + l->out[i].sh_size;
  }
  return offset;
}

/* What is read-only once it is loaded ends with a page, for pages are what the dynamic linker protects. It may begin in
 * the page in which the code ends; that page of the file is then mapped twice. */
static void place_writable(Linker *l, uint64_t begin) {
  uint64_t alignment = 1;
  for (Part i = POINTERS; i <= GOT; i++)
    if (l->out[i].sh_addralign > alignment) alignment = l->out[i].sh_addralign;
  const uint64_t size = round_up(place_parts(l, POINTERS, GOT, 0, 0), alignment), page = l->types->page;
  l->pointers_offset = round_up(begin + size, page) - size;
  const uint64_t shift = l->pointers_offset / page == (begin - 1) / page ? page : 0;
  place_parts(l, POINTERS, GOT, l->pointers_offset, shift);
  l->data_offset = l->pointers_offset + size;
  l->data_end = place_parts(l, DATA, DATA, l->data_offset, shift);
  if (!l->out[DATA].sh_size) l->data_end = l->data_offset;
  l->memory_end = place_parts(l, ZEROES, ZEROES, l->data_end, shift) + shift;
  l->shift = shift;
}

bool linked_part_exists(const Linker *l, Part part) { return l->out[part].sh_size > 0; }

/* The number of a part among the sections; of what is left out, data and zeroes alone, the number of the next one. */
uint32_t linked_part_number(const Linker *l, Part part) {
  uint32_t number = 1;
  for (Part i = HASH; i < part; i++) number += linked_part_exists(l, i);
  return number;
}

static void place(Linker *l) {
  begin_parts(l);
  const uint64_t head = sizeof(Elf64_Ehdr) + N_SEGMENTS * sizeof(Elf64_Phdr);
  l->code_end = place_parts(l, HASH, DESCRIPTION, head, 0);
  place_writable(l, l->code_end);
  for_each_section(l, place_for_good);
  for (Part i = HASH; i < N_PARTS; i++)
    if (i == NAMES || linked_part_exists(l, i)) l->out[i].sh_name = add_text(&l->names, parts[i].name);
  l->out[NAMES].sh_size = l->names.length;
  l->out[NAMES].sh_offset = l->data_end;
  l->headers_offset = round_up(l->data_end + l->names.length, 8);
  l->file_bytes = l->headers_offset + (linked_part_number(l, NAMES) + 1) * sizeof(Elf64_Shdr);
  l->file = arena_alloc(l->arena, l->file_bytes);
}

bool linked_lay_out(Linker *l, const char *prefix, const char *soname, const Bytes *objects, size_t n_objects) {
  strbuf_add_char(&l->texts, '\0');
  strbuf_add_char(&l->names, '\0');
  if (!choose(l, prefix, soname, objects, n_objects)) return false;
  place(l);
  return true;
}

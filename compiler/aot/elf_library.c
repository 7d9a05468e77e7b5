/* In: objects and the archive of the runtime. Out: a shared library. See elf_library.h.
 *
 * First everything is chosen and counted, then every section gets its place, then the bytes are written: the three
 * chapters below. Names and rules are those of the System V ABI and of glibc's dynamic linker. */
#include "aot/elf_library.h"

#include <stdlib.h>
#include <string.h>

#include "aot/elf_objects.h"
#include "aot/library_file.h"
#include "base/strbuf.h"

enum { PAGE = 4096, STUB_BYTES = 8, BLOOM_WORDS = 4, BLOOM_SHIFT = 6, N_SEGMENTS = 5, FIRST_VERSION = 2 };

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
  DESCRIPTION,
  POINTERS,
  DYNAMIC,
  GOT,
  DATA,
  ZEROES,
  NAMES,
  N_PARTS
} Part;

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
    [STUBS] = {".plt", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0, 16, STUB_BYTES},
    [CODE] = {".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0, 1, 0},
    [CONSTANTS] = {".rodata", SHT_PROGBITS, SHF_ALLOC, 0, 1, 0},
    [DESCRIPTION] = {LIBRARY_SECTION, SHT_PROGBITS, SHF_ALLOC, 0, 1, 0},
    [POINTERS] = {".data.rel.ro", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 0, 1, 0},
    [DYNAMIC] = {".dynamic", SHT_DYNAMIC, SHF_ALLOC | SHF_WRITE, TEXTS, 8, sizeof(Elf64_Dyn)},
    [GOT] = {".got", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 0, 8, 8},
    [DATA] = {".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 0, 1, 0},
    [ZEROES] = {".bss", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, 0, 1, 0},
    [NAMES] = {".shstrtab", SHT_STRTAB, 0, 0, 1, 0},
};

typedef struct Export {
  const char *name;
  const ElfDefinition *definition;
  uint32_t hash, bucket; /* of the hash table */
} Export;

typedef struct Version { /* of a library of the system; its number is its index + FIRST_VERSION */
  const char *library, *name;
} Version;

typedef struct Linker {
  Arena *arena;
  Diag *diag;
  ElfObjects objects;
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
  StrBuf texts, needs, names;
  Elf64_Shdr out[N_PARTS];
  uint64_t code_end, pointers_offset, data_offset, data_end, headers_offset, file_bytes; /* in the file */
  uint64_t shift;      /* from the offset of what can be written to its address */
  uint64_t memory_end; /* an address */
  char *file;
} Linker;

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

static Part part_of(const ElfSection *section) {
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

static bool wants_slot(uint64_t type) {
  return type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX || type == R_X86_64_REX_GOTPCRELX;
}

/* The slot of the GOT that holds an address; a new one if there is none yet. */
static uint64_t slot_of(Linker *l, const ElfTarget *target) {
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
      const uint64_t type = ELF64_R_TYPE(section->relocations[k].r_info);
      const ElfTarget target = elf_target(&l->objects, section, &section->relocations[k]);
      l->n_pointers += type == R_X86_64_64;
      if (wants_slot(type)) slot_of(l, &target);
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
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) vec_push(l->arena, &l->dynamic, entries[i]);
}

static bool choose(Linker *l, const char *prefix, const char *soname, const Bytes *objects, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!elf_objects_add(&l->objects, objects[i])) return false;
  if (!elf_objects_add_archive(&l->objects, runtime_archive()) || !choose_exports(l, prefix)) return false;
  make_symbols(l);
  for (size_t i = 0; i < l->libraries.n; i++) add_needs(l, l->libraries.items[i], i + 1 == l->libraries.n);
  count_relocations(l);
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
  Elf64_Shdr *part = &l->out[part_of(section)];
  const uint64_t alignment = section->header->sh_addralign ? section->header->sh_addralign : 1;
  section->address = round_up(part->sh_size, alignment);
  part->sh_size = section->address + section->header->sh_size;
  if (alignment > part->sh_addralign) part->sh_addralign = alignment;
}

static void place_for_good(Linker *l, ElfSection *section) { section->address += l->out[part_of(section)].sh_addr; }

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
  l->out[STUBS].sh_size = l->n_outside * STUB_BYTES;
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
  const uint64_t size = round_up(place_parts(l, POINTERS, GOT, 0, 0), alignment);
  l->pointers_offset = round_up(begin + size, PAGE) - size;
  const uint64_t shift = l->pointers_offset / PAGE == (begin - 1) / PAGE ? PAGE : 0;
  place_parts(l, POINTERS, GOT, l->pointers_offset, shift);
  l->data_offset = l->pointers_offset + size;
  l->data_end = place_parts(l, DATA, DATA, l->data_offset, shift);
  if (!l->out[DATA].sh_size) l->data_end = l->data_offset;
  l->memory_end = place_parts(l, ZEROES, ZEROES, l->data_end, shift) + shift;
  l->shift = shift;
}

static bool is_there(const Linker *l, Part part) { return l->out[part].sh_size > 0; }

/* The number of a part among the sections; of what is left out, data and zeroes alone, the number of the next one. */
static uint32_t part_number(const Linker *l, Part part) {
  uint32_t number = 1;
  for (Part i = HASH; i < part; i++) number += is_there(l, i);
  return number;
}

static void place(Linker *l) {
  begin_parts(l);
  const uint64_t head = sizeof(Elf64_Ehdr) + N_SEGMENTS * sizeof(Elf64_Phdr);
  l->code_end = place_parts(l, HASH, DESCRIPTION, head, 0);
  place_writable(l, l->code_end);
  for_each_section(l, place_for_good);
  for (Part i = HASH; i < N_PARTS; i++)
    if (i == NAMES || is_there(l, i)) l->out[i].sh_name = add_text(&l->names, parts[i].name);
  l->out[NAMES].sh_size = l->names.length;
  l->out[NAMES].sh_offset = l->data_end;
  l->headers_offset = round_up(l->data_end + l->names.length, 8);
  l->file_bytes = l->headers_offset + (part_number(l, NAMES) + 1) * sizeof(Elf64_Shdr);
  l->file = arena_alloc(l->arena, l->file_bytes);
}

// ---- 3. what it says ----

static char *bytes_at(Linker *l, Part part, uint64_t address) {
  return l->file + l->out[part].sh_offset + (address - l->out[part].sh_addr);
}

static void put_part(Linker *l, Part part, const void *bytes) {
  memcpy(l->file + l->out[part].sh_offset, bytes, l->out[part].sh_size);
}

static void copy_section(Linker *l, ElfSection *section) {
  if (section->header->sh_type != SHT_NOBITS && section->header->sh_size)
    memcpy(bytes_at(l, part_of(section), section->address), section->object->data + section->header->sh_offset,
           section->header->sh_size);
}

/* Where a call or a reference goes that needs no slot: functions outside have a stub. */
static uint64_t address_of(const Linker *l, const ElfTarget *target) {
  if (target->section) return target->section->address + target->value;
  return l->out[STUBS].sh_addr + (target->outside->symbol - 1) * STUB_BYTES;
}

static void point(Linker *l, uint64_t where, const ElfTarget *target, int64_t addend) {
  if (target->section)
    vec_push(l->arena, &l->relative,
             (Elf64_Rela){where, ELF64_R_INFO(0, R_X86_64_RELATIVE), (int64_t)address_of(l, target) + addend});
  else
    vec_push(l->arena, &l->symbolic,
             (Elf64_Rela){where, ELF64_R_INFO((uint64_t)target->outside->symbol, R_X86_64_64), addend});
}

static bool relocate(Linker *l, const ElfSection *section, const Elf64_Rela *relocation) {
  const uint64_t type = ELF64_R_TYPE(relocation->r_info), where = section->address + relocation->r_offset;
  const ElfTarget target = elf_target(&l->objects, section, relocation);
  if (type == R_X86_64_64) {
    point(l, where, &target, relocation->r_addend);
    return true;
  }
  if (type != R_X86_64_PC32 && type != R_X86_64_PLT32 && !wants_slot(type)) {
    diag_error_at(l->diag, NULL, DIAG_TOOL, "relocations of type %u need a linker: give one with --cc", (unsigned)type);
    return false;
  }
  const uint64_t to = wants_slot(type) ? l->out[GOT].sh_addr + slot_of(l, &target) * 8 : address_of(l, &target);
  const int64_t distance = (int64_t)(to + (uint64_t)relocation->r_addend - where);
  const int32_t narrow = (int32_t)distance;
  memcpy(bytes_at(l, part_of(section), where), &narrow, sizeof narrow);
  if (narrow == distance) return true;
  diag_error_at(l->diag, NULL, DIAG_TOOL, "the library is larger than 2 GB: leave its weights in a file of their own");
  return false;
}

static bool relocate_all(Linker *l) {
  for (size_t i = 0; i < l->objects.needed.n; i++) {
    const ElfSection *section = l->objects.needed.items[i];
    for (size_t k = 0; k < section->n_relocations; k++)
      if (!relocate(l, section, &section->relocations[k])) return false;
  }
  return true;
}

/* jmp *slot(%rip), and two bytes that are never reached. */
static void write_stubs(Linker *l) {
  static const unsigned char jump[STUB_BYTES] = {0xff, 0x25, 0, 0, 0, 0, 0x66, 0x90};
  for (uint32_t i = 0; i < l->n_outside; i++) {
    const uint64_t stub = l->out[STUBS].sh_addr + i * STUB_BYTES, slot = l->out[GOT].sh_addr + i * 8;
    const int32_t distance = (int32_t)(slot - (stub + 6));
    memcpy(bytes_at(l, STUBS, stub), jump, sizeof jump);
    memcpy(bytes_at(l, STUBS, stub) + 2, &distance, sizeof distance);
  }
}

/* The dynamic linker fills the slots before the library runs. Relative relocations come first, which DT_RELACOUNT
 * promises, and in the order of their places, so that it goes through memory once. */
static int compare_places(const void *a, const void *b) {
  const Elf64_Rela *x = a, *y = b;
  return x->r_offset < y->r_offset ? -1 : x->r_offset > y->r_offset;
}

static void write_relocations(Linker *l) {
  for (uint32_t i = 0; i < l->n_outside; i++)
    vec_push(l->arena, &l->symbolic,
             (Elf64_Rela){l->out[GOT].sh_addr + i * 8, ELF64_R_INFO(i + UINT64_C(1), R_X86_64_GLOB_DAT), 0});
  for (size_t i = 0; i < l->own_slots.n; i++)
    point(l, l->out[GOT].sh_addr + (l->n_outside + i) * 8, &l->own_slots.items[i], 0);
  qsort(l->relative.items, l->relative.n, sizeof(Elf64_Rela), compare_places);
  char *at = l->file + l->out[RELOCATIONS].sh_offset;
  memcpy(at, l->relative.items, l->relative.n * sizeof(Elf64_Rela));
  memcpy(at + l->relative.n * sizeof(Elf64_Rela), l->symbolic.items, l->symbolic.n * sizeof(Elf64_Rela));
}

/* Head, bloom filter, the first symbol of each bucket, then the hash of each symbol, whose last bit ends its bucket. */
static void write_hash(Linker *l) {
  const uint32_t n = (uint32_t)l->exports.n, first = l->n_outside + 1;
  uint32_t head[4] = {n, first, BLOOM_WORDS, BLOOM_SHIFT};
  uint64_t bloom[BLOOM_WORDS] = {0};
  uint32_t *buckets = ARENA_ARRAY(l->arena, uint32_t, 2 * n), *chain = buckets + n;
  for (uint32_t i = 0; i < n; i++) {
    const Export *export = &l->exports.items[i];
    const bool is_last = i + 1 == n || export[1].bucket != export->bucket;
    bloom[export->hash / 64 % BLOOM_WORDS] |=
        UINT64_C(1) << export->hash % 64 | UINT64_C(1) << (export->hash >> BLOOM_SHIFT) % 64;
    if (!buckets[export->bucket]) buckets[export->bucket] = first + i;
    chain[i] = is_last ? export->hash | 1 : export->hash & ~1u;
  }
  char *at = l->file + l->out[HASH].sh_offset;
  memcpy(at, head, sizeof head);
  memcpy(at + sizeof head, bloom, sizeof bloom);
  memcpy(at + sizeof head + sizeof bloom, buckets, 2 * n * sizeof *buckets);
}

static void write_symbols(Linker *l) {
  for (size_t i = 0; i < l->exports.n; i++) {
    Elf64_Sym *symbol = &l->symbols.items[1 + l->n_outside + i];
    symbol->st_shndx = (Elf64_Half)part_number(l, CODE);
    symbol->st_value = address_of(l, &l->exports.items[i].definition->target);
  }
  put_part(l, SYMBOLS, l->symbols.items);
  put_part(l, TEXTS, l->texts.text);
  put_part(l, VERSIONS, l->symbol_versions.items);
  put_part(l, NEEDS, l->needs.text);
}

/* Values that are addresses or counts were not known when the table was made. */
static void write_dynamic(Linker *l) {
  for (size_t i = 0; i < l->dynamic.n; i++) {
    Elf64_Dyn *entry = &l->dynamic.items[i];
    switch (entry->d_tag) {
      case DT_GNU_HASH:
        entry->d_un.d_ptr = l->out[HASH].sh_addr;
        break;
      case DT_STRTAB:
        entry->d_un.d_ptr = l->out[TEXTS].sh_addr;
        break;
      case DT_SYMTAB:
        entry->d_un.d_ptr = l->out[SYMBOLS].sh_addr;
        break;
      case DT_RELA:
        entry->d_un.d_ptr = l->out[RELOCATIONS].sh_addr;
        break;
      case DT_RELACOUNT:
        entry->d_un.d_val = l->relative.n;
        break;
      case DT_VERNEED:
        entry->d_un.d_ptr = l->out[NEEDS].sh_addr;
        break;
      case DT_VERSYM:
        entry->d_un.d_ptr = l->out[VERSIONS].sh_addr;
        break;
      default:
        break;
    }
  }
  put_part(l, DYNAMIC, l->dynamic.items);
}

static void write_segments(Linker *l) {
  const uint64_t at = l->pointers_offset, address = at + l->shift, file = l->data_end - at;
  const Elf64_Shdr *dynamic = &l->out[DYNAMIC];
  const Elf64_Phdr segments[N_SEGMENTS] = {
      {PT_LOAD, PF_R | PF_X, 0, 0, 0, l->code_end, l->code_end, PAGE},
      {PT_LOAD, PF_R | PF_W, at, address, address, file, l->memory_end - address, PAGE},
      {PT_DYNAMIC, PF_R | PF_W, dynamic->sh_offset, dynamic->sh_addr, dynamic->sh_addr, dynamic->sh_size,
       dynamic->sh_size, 8},
      {PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0, 0, 16},
      {PT_GNU_RELRO, PF_R, at, address, address, l->data_offset - at, l->data_offset - at, 1}};
  memcpy(l->file + sizeof(Elf64_Ehdr), segments, sizeof segments);
}

static void write_headers(Linker *l) {
  const uint32_t names = part_number(l, NAMES);
  const Elf64_Ehdr head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                           .e_type = ET_DYN,
                           .e_machine = EM_X86_64,
                           .e_version = EV_CURRENT,
                           .e_phoff = sizeof head,
                           .e_shoff = l->headers_offset,
                           .e_ehsize = sizeof head,
                           .e_phentsize = sizeof(Elf64_Phdr),
                           .e_phnum = N_SEGMENTS,
                           .e_shentsize = sizeof(Elf64_Shdr),
                           .e_shnum = (Elf64_Half)(names + 1),
                           .e_shstrndx = (Elf64_Half)names};
  memcpy(l->file, &head, sizeof head);
  write_segments(l);
  put_part(l, NAMES, l->names.text);
  char *at = l->file + l->headers_offset + sizeof(Elf64_Shdr); /* the first section is none */
  for (Part i = HASH; i < N_PARTS; i++) {
    if (!is_there(l, i)) continue;
    memcpy(at, &l->out[i], sizeof(Elf64_Shdr));
    at += sizeof(Elf64_Shdr);
  }
}

Bytes elf_library(Arena *arena, Diag *diag, const char *prefix, const char *soname, const Bytes *objects,
                  size_t n_objects) {
  Linker l = {.arena = arena, .diag = diag, .objects = elf_objects_new(arena, diag)};
  l.texts = strbuf_new(arena);
  l.needs = strbuf_new(arena);
  l.names = strbuf_new(arena);
  strbuf_add_char(&l.texts, '\0');
  strbuf_add_char(&l.names, '\0');
  if (!choose(&l, prefix, soname, objects, n_objects)) return (Bytes){0};
  place(&l);
  for_each_section(&l, copy_section);
  if (!relocate_all(&l)) return (Bytes){0};
  write_stubs(&l);
  write_relocations(&l);
  write_hash(&l);
  write_symbols(&l);
  write_dynamic(&l);
  write_headers(&l);
  return (Bytes){l.file, l.file_bytes};
}

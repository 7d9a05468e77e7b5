/* In: objects and the archive of the runtime. Out: a shared library. See elf_library.h.
 *
 * What goes in and where it lies is decided first, in elf_library_layout.c; then the bytes are written: sections with
 * their relocations done, the tables of the dynamic linker, headers. Names and rules are those of the System V ABI and
 * of glibc's dynamic linker. */
#include "aot/elf_library.h"

#include <stdlib.h>
#include <string.h>

#include "aot/elf_library_layout.h"

static char *bytes_at(Linker *l, Part part, uint64_t address) {
  return l->file + l->out[part].sh_offset + (address - l->out[part].sh_addr);
}

static void put_part(Linker *l, Part part, const void *bytes) {
  memcpy(l->file + l->out[part].sh_offset, bytes, l->out[part].sh_size);
}

static void copy_section(Linker *l, const ElfSection *section) {
  if (section->header->sh_type != SHT_NOBITS && section->header->sh_size)
    memcpy(bytes_at(l, linked_part(section), section->address), section->object->data + section->header->sh_offset,
           section->header->sh_size);
}

/* Where a call or a reference goes that needs no slot: functions outside have a stub. */
static uint64_t address_of(const Linker *l, const ElfTarget *target) {
  if (target->section) return target->section->address + target->value;
  return l->out[STUBS].sh_addr + (target->outside->symbol - 1) * l->types->stub_bytes;
}

static void point(Linker *l, uint64_t where, const ElfTarget *target, int64_t addend) {
  if (target->section)
    vec_push(l->arena, &l->relative,
             (Elf64_Rela){where, ELF64_R_INFO(0, l->types->relative), (int64_t)address_of(l, target) + addend});
  else
    vec_push(l->arena, &l->symbolic,
             (Elf64_Rela){where, ELF64_R_INFO((uint64_t)target->outside->symbol, l->types->symbolic), addend});
}

/* What an entry asks for is `to`, an address with the addend, from `where` on. */
typedef struct Asked {
  const Relocation *row; /* NULL: its type is unknown */
  ElfTarget target;
  uint64_t to, where;
} Asked;

static Asked asked_by(Linker *l, const ElfSection *section, const Elf64_Rela *relocation) {
  Asked asked = {.row = relocation_find(l->objects.family, ELF64_R_TYPE(relocation->r_info)),
                 .target = elf_target(&l->objects, section, relocation),
                 .where = section->address + relocation->r_offset};
  const bool by_slot = asked.row && asked.row->kind == RELOCATION_SLOT;
  asked.to = by_slot ? l->out[GOT].sh_addr + linked_slot(l, &asked.target) * 8 : address_of(l, &asked.target);
  asked.to += (uint64_t)relocation->r_addend;
  return asked;
}

/* The distance that is asked for at the place that an entry names, which has the other half of it. Assemblers write
 * that entry before this one: the search goes back. */
static bool find_pair(Linker *l, const ElfSection *section, const Elf64_Rela *relocation, Asked *asked) {
  for (const Elf64_Rela *other = relocation; other-- > section->relocations;) {
    if (section->address + other->r_offset != asked->to) continue;
    const Asked pair = asked_by(l, section, other);
    if (!pair.row || pair.row->base != BASE_RELATIVE) continue;
    asked->to = pair.to - pair.where;
    return true;
  }
  return false;
}

static bool relocate(Linker *l, const ElfSection *section, const Elf64_Rela *relocation) {
  const uint64_t type = ELF64_R_TYPE(relocation->r_info);
  Asked asked = asked_by(l, section, relocation);
  if (!asked.row || (asked.row->kind == RELOCATION_PAIRED && !find_pair(l, section, relocation, &asked))) {
    diag_error_at(l->diag, NULL, DIAG_TOOL, "relocations of type %u need a linker: give one with --cc", (unsigned)type);
    return false;
  }
  if (asked.row->base == BASE_ABSOLUTE) {
    point(l, asked.where, &asked.target, relocation->r_addend);
    return true;
  }
  if (relocation_write(asked.row, asked.to, asked.where, bytes_at(l, linked_part(section), asked.where))) return true;
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

static void write_stubs(Linker *l) {
  const uint32_t bytes = l->types->stub_bytes;
  for (uint32_t i = 0; i < l->n_outside; i++) {
    const uint64_t stub = l->out[STUBS].sh_addr + i * bytes, slot = l->out[GOT].sh_addr + i * 8;
    memcpy(bytes_at(l, STUBS, stub), l->types->stub, bytes);
    for (int k = 0; k < MOST_PLACES_IN_STUB && l->types->places[k].type; k++) {
      const PlaceInStub *in_stub = &l->types->places[k];
      const uint64_t place = stub + in_stub->offset;
      const Relocation *row = relocation_find(l->objects.family, in_stub->type);
      relocation_write(row, slot + (uint64_t)in_stub->addend, place, bytes_at(l, STUBS, place));
    }
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
             (Elf64_Rela){l->out[GOT].sh_addr + i * 8, ELF64_R_INFO(i + UINT64_C(1), l->types->slot), 0});
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
    symbol->st_shndx = (Elf64_Half)linked_part_number(l, CODE);
    symbol->st_value = address_of(l, &l->exports.items[i].definition->target);
  }
  put_part(l, SYMBOLS, l->symbols.items);
  put_part(l, TEXTS, l->texts.text);
  put_part(l, VERSIONS, l->symbol_versions.items);
  put_part(l, NEEDS, l->needs.text);
}

/* Addresses and counts were not known when the table was made. */
static void write_dynamic(Linker *l) {
  static const struct {
    int64_t tag;
    Part part;
  } addresses[] = {{DT_GNU_HASH, HASH},         {DT_STRTAB, TEXTS},  {DT_SYMTAB, SYMBOLS},
                   {DT_RELA, RELOCATIONS},      {DT_VERNEED, NEEDS}, {DT_VERSYM, VERSIONS}};
  for (size_t i = 0; i < l->dynamic.n; i++) {
    Elf64_Dyn *entry = &l->dynamic.items[i];
    if (entry->d_tag == DT_RELACOUNT) entry->d_un.d_val = l->relative.n;
    for (size_t k = 0; k < sizeof addresses / sizeof *addresses; k++)
      if (entry->d_tag == addresses[k].tag) entry->d_un.d_ptr = l->out[addresses[k].part].sh_addr;
  }
  put_part(l, DYNAMIC, l->dynamic.items);
}

/* A row says how far a function and its entry are from the table. */
typedef struct FrameRow {
  int32_t function, entry;
} FrameRow;

static int compare_rows(const void *a, const void *b) {
  const FrameRow *x = a, *y = b;
  return x->function < y->function ? -1 : x->function > y->function;
}

/* The table is searched by halves: its rows stand in the order of functions. Its head says how the numbers are written
 * (DW_EH_PE_*): distances in 4 bytes, from where they stand (the entries) or from the table (the rows). */
static void write_frames(Linker *l) {
  const uint64_t table = l->out[FRAME_TABLE].sh_addr, frames = l->out[FRAMES].sh_addr;
  const size_t n = l->frame_list.n;
  if (!n) return;
  FrameRow *rows = ARENA_ARRAY(l->arena, FrameRow, n);
  put_part(l, FRAMES, l->frames.text);
  for (size_t i = 0; i < n; i++) {
    const Frame *frame = &l->frame_list.items[i];
    const uint64_t function = address_of(l, &frame->function), entry = frames + frame->offset;
    const int32_t distance = (int32_t)(function - (entry + FRAME_BEGIN));
    memcpy(bytes_at(l, FRAMES, entry) + FRAME_BEGIN, &distance, sizeof distance);
    rows[i] = (FrameRow){(int32_t)(function - table), (int32_t)(entry - table)};
  }
  qsort(rows, n, sizeof *rows, compare_rows);
  static const unsigned char forms[4] = {1, 0x1b, 0x03, 0x3b};
  const int32_t to_frames = (int32_t)(frames - (table + sizeof forms)), count = (int32_t)n;
  char *at = bytes_at(l, FRAME_TABLE, table);
  memcpy(at, forms, sizeof forms);
  memcpy(at + 4, &to_frames, sizeof to_frames);
  memcpy(at + 8, &count, sizeof count);
  memcpy(at + FRAME_TABLE_HEAD, rows, n * sizeof *rows);
}

static void write_segments(Linker *l) {
  const uint64_t at = l->pointers_offset, address = at + l->shift, file = l->data_end - at;
  const Elf64_Shdr *dynamic = &l->out[DYNAMIC], *table = &l->out[FRAME_TABLE];
  const Elf64_Phdr segments[N_SEGMENTS] = {
      {PT_LOAD, PF_R | PF_X, 0, 0, 0, l->code_end, l->code_end, l->types->page},
      {PT_LOAD, PF_R | PF_W, at, address, address, file, l->memory_end - address, l->types->page},
      {PT_DYNAMIC, PF_R | PF_W, dynamic->sh_offset, dynamic->sh_addr, dynamic->sh_addr, dynamic->sh_size,
       dynamic->sh_size, 8},
      {table->sh_size ? PT_GNU_EH_FRAME : PT_NULL, PF_R, table->sh_offset, table->sh_addr, table->sh_addr,
       table->sh_size, table->sh_size, 4},
      {PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0, 0, 16},
      {PT_GNU_RELRO, PF_R, at, address, address, l->data_offset - at, l->data_offset - at, 1}};
  memcpy(l->file + sizeof(Elf64_Ehdr), segments, sizeof segments);
}

static void write_headers(Linker *l) {
  const uint32_t names = linked_part_number(l, NAMES);
  const Elf64_Ehdr head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                           .e_type = ET_DYN,
                           .e_machine = l->objects.machine,
                           .e_version = EV_CURRENT,
                           .e_phoff = sizeof head,
                           .e_shoff = l->headers_offset,
                           .e_flags = l->objects.flags,
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
    if (!linked_part_exists(l, i)) continue;
    memcpy(at, &l->out[i], sizeof(Elf64_Shdr));
    at += sizeof(Elf64_Shdr);
  }
}

static void copy_sections(Linker *l) {
  for (size_t i = 0; i < l->objects.needed.n; i++) copy_section(l, l->objects.needed.items[i]);
}

static bool write_all(Linker *l) {
  copy_sections(l);
  if (!relocate_all(l)) return false;
  write_stubs(l);
  write_relocations(l);
  write_hash(l);
  write_symbols(l);
  write_dynamic(l);
  write_frames(l);
  write_headers(l);
  return true;
}

Bytes elf_library(Arena *arena, Diag *diag, const char *prefix, const char *soname, const Bytes *objects,
                  size_t n_objects) {
  Linker l = {.arena = arena,
              .diag = diag,
              .objects = elf_objects_new(arena, diag),
              .texts = strbuf_new(arena),
              .needs = strbuf_new(arena),
              .names = strbuf_new(arena),
              .frames = strbuf_new(arena)};
  if (!linked_lay_out(&l, prefix, soname, objects, n_objects) || !write_all(&l)) return (Bytes){0};
  return (Bytes){l.file, l.file_bytes};
}

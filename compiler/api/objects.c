/* A loader of relocatable objects: they are read, every table is found and bounded, then sections are put into memory
 * and linked. See objects.h for what is promised.
 *
 * The compiler that made the objects is trusted no more than any file: it may be of another version, or have been
 * killed while it wrote. Only what the code generator of tfmc emits is known (relocations that have a row and need
 * no slot, no thread-local data, no constructors); everything else is refused by name. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "api/objects.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/request.h"
#include "target/relocations.h"

// ---- an object file ----

/* As it lies in memory, with every table found and bounded. */
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

/* Whether `count` entries of `size` bytes at `offset` lie within the file. Written without a sum that could wrap
 * around. */
static bool lies_within(const Object *object, uint64_t offset, uint64_t count, uint64_t size) {
  uint64_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || offset > object->size) return false;
  return bytes <= object->size - offset;
}

/* The table at a section, whose entries have `size` bytes; NULL if it does not lie within the file. */
static const void *section_table(const ObjectFile *file, const Elf64_Shdr *section, size_t size) {
  if (section->sh_offset % 8 || section->sh_size % size) return NULL;
  if (!lies_within(file->object, section->sh_offset, section->sh_size, 1)) return NULL;
  return file->object->data + section->sh_offset;
}

/* Whether a section has bytes that the program needs. Tables for unwinding are not among them. */
static bool section_is_loaded(const Elf64_Shdr *section) {
  return section->sh_flags & SHF_ALLOC && (section->sh_type == SHT_PROGBITS || section->sh_type == SHT_NOBITS);
}

static bool section_is_code(const Elf64_Shdr *section) { return section->sh_flags & SHF_EXECINSTR; }

static bool is_our_kind(const Object *object) {
  static const unsigned char ident[] = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT};
  if (object->size < sizeof(Elf64_Ehdr)) return false;
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)object->data;
  return memcmp(header->e_ident, ident, sizeof ident) == 0 && header->e_type == ET_REL &&
         family_of_elf(header->e_machine) == cpu_family() && header->e_shentsize == sizeof(Elf64_Shdr) &&
         header->e_shoff % 8 == 0 && lies_within(object, header->e_shoff, header->e_shnum, sizeof(Elf64_Shdr));
}

/* The table of names must end with a NUL: then every name that begins within it ends within it. */
static bool read_symbols(ObjectFile *file, const Elf64_Shdr *section) {
  file->symbols = section_table(file, section, sizeof(Elf64_Sym));
  if (!file->symbols || section->sh_link >= file->n_sections || section->sh_size > UINT32_MAX) return false;
  file->n_symbols = (uint32_t)(section->sh_size / sizeof(Elf64_Sym));
  const Elf64_Shdr *names = &file->sections[section->sh_link];
  if (names->sh_type != SHT_STRTAB || !names->sh_size) return false;
  if (!lies_within(file->object, names->sh_offset, names->sh_size, 1)) return false;
  file->names = file->object->data + names->sh_offset;
  file->names_size = names->sh_size;
  return file->names[file->names_size - 1] == '\0';
}

/* Bytes within the file, and an alignment that a page satisfies. */
static bool section_is_sound(const ObjectFile *file, const Elf64_Shdr *section) {
  uint64_t alignment = section->sh_addralign;
  if (alignment > 4096 || (alignment & (alignment - 1))) return false;
  return section->sh_type == SHT_NOBITS ? section->sh_size <= INT32_MAX
                                        : lies_within(file->object, section->sh_offset, section->sh_size, 1);
}

/* False: it is no object of this kind, or it is broken. `addresses` is not touched. */
static bool object_file_read(const Object *object, ObjectFile *file) {
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

/* NULL after a bad offset. */
static const char *symbol_name(const ObjectFile *file, const Elf64_Sym *symbol) {
  return symbol->st_name < file->names_size ? file->names + symbol->st_name : NULL;
}

// ---- the image ----

enum { SLOT_BYTES = 8, STUB_ALIGNMENT = 16 };

typedef struct Linker {
  ObjectFile *files;
  size_t n;
  OutsideFunctions outside;
  const LibraryRelocations *types; /* stubs of this machine */
  char *memory;
  size_t stubs, code_size, size; /* code, with the stubs at its end; slots of the stubs; the rest */
  tfm_error *error;
} Linker;

static tfm_status broken(Linker *l, const char *what) {
  return api_fault(l->error, TFM_E_INTERNAL, "the compiler made an object that cannot be loaded: %s", what);
}

// ---- where sections lie ----

static size_t round_up(size_t size, size_t alignment) { return (size + alignment - 1) & ~(alignment - 1); }

/* Gives each section of one kind its place from `at` on. Called twice: first to learn how much memory is needed, then,
 * when `memory` is there, to note addresses. Both times in the same order, so both give the same places. */
static size_t place(Linker *l, bool code, size_t at) {
  for (size_t i = 0; i < l->n; i++)
    for (uint32_t s = 0; s < l->files[i].n_sections; s++) {
      const Elf64_Shdr *section = &l->files[i].sections[s];
      if (!section_is_loaded(section) || section_is_code(section) != code) continue;
      at = round_up(at, section->sh_addralign ? section->sh_addralign : 1);
      if (l->memory) l->files[i].addresses[s] = l->memory + at;
      at += section->sh_size;
    }
  return at;
}

static char *stub(const Linker *l, size_t number) { return l->memory + l->stubs + number * l->types->stub_bytes; }

static char *slot(const Linker *l, size_t number) { return l->memory + l->code_size + number * SLOT_BYTES; }

static uint64_t number_of(const char *address) { return (uint64_t)(uintptr_t)address; }

/* A stub jumps to where its slot says: a call reaches 128 MB or 2 GB, and the functions of this library may lie
 * farther away than that. */
static bool write_stubs(Linker *l) {
  bool reach = true;
  for (size_t i = 0; i < l->outside.n; i++) {
    memcpy(slot(l, i), &l->outside.items[i].address, sizeof l->outside.items[i].address);
    memcpy(stub(l, i), l->types->stub, l->types->stub_bytes);
    for (int k = 0; k < MOST_PLACES_IN_STUB && l->types->places[k].type; k++) {
      const PlaceInStub *in_stub = &l->types->places[k];
      char *at = stub(l, i) + in_stub->offset;
      const uint64_t value = number_of(slot(l, i)) + (uint64_t)in_stub->addend;
      reach &= relocation_write(relocation_find(l->types->family, in_stub->type), value, number_of(at), at);
    }
  }
  return reach;
}

static void copy_sections(Linker *l) {
  for (size_t i = 0; i < l->n; i++)
    for (uint32_t s = 0; s < l->files[i].n_sections; s++) {
      const Elf64_Shdr *section = &l->files[i].sections[s];
      if (l->files[i].addresses[s] && section->sh_type == SHT_PROGBITS && section->sh_size)
        memcpy(l->files[i].addresses[s], l->files[i].object->data + section->sh_offset, section->sh_size);
    }
}

/* Code and data are one mapping, each in whole pages of the system, so a relocation between them always reaches. */
static tfm_status make_image(Linker *l) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  l->stubs = round_up(place(l, true, 0), STUB_ALIGNMENT);
  l->code_size = round_up(l->stubs + l->outside.n * l->types->stub_bytes, page);
  const size_t data = l->code_size + l->outside.n * SLOT_BYTES;
  l->size = round_up(place(l, false, data), page);
  if (l->size > INT32_MAX) return broken(l, "it is too large");
  void *memory = mmap(NULL, l->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return api_fault(l->error, TFM_E_NOMEM, "not enough memory for %zu bytes of code", l->size);
  l->memory = memory;
  place(l, true, 0);
  place(l, false, data);
  copy_sections(l);
  return write_stubs(l) ? TFM_OK : broken(l, "a stub out of reach");
}

// ---- symbols ----

/* The address of a symbol that the file itself defines, in a section that was loaded; else NULL. */
static char *defined_at(const ObjectFile *file, const Elf64_Sym *symbol) {
  if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= file->n_sections) return NULL;
  char *section = file->addresses[symbol->st_shndx];
  return section && symbol->st_value <= file->sections[symbol->st_shndx].sh_size ? section + symbol->st_value : NULL;
}

/* The address of what any of the objects, or else the outside, calls `name`. Linear: there are some dozens of names. */
static char *find(const Linker *l, const char *name) {
  for (size_t i = 0; i < l->n; i++)
    for (uint32_t k = 0; k < l->files[i].n_symbols; k++) {
      const Elf64_Sym *symbol = &l->files[i].symbols[k];
      const char *other = symbol_name(&l->files[i], symbol);
      if (ELF64_ST_BIND(symbol->st_info) == STB_LOCAL || !other || strcmp(other, name) != 0) continue;
      char *address = defined_at(&l->files[i], symbol);
      if (address) return address;
    }
  for (size_t i = 0; i < l->outside.n; i++)
    if (strcmp(l->outside.items[i].name, name) == 0) return stub(l, i);
  return NULL;
}

static char *address_of(const Linker *l, const ObjectFile *file, uint32_t number) {
  if (number >= file->n_symbols) return NULL;
  const Elf64_Sym *symbol = &file->symbols[number];
  const char *name = symbol_name(file, symbol);
  return symbol->st_shndx == SHN_UNDEF && name ? find(l, name) : defined_at(file, symbol);
}

// ---- relocations ----

/* The entries of one section, and where it lies. */
typedef struct Entries {
  const ObjectFile *file;
  const Elf64_Rela *items;
  uint64_t n, section_size;
  char *section;
} Entries;

/* What an entry asks for: `value`, an address with the addend, for the place `at`. */
typedef struct Asked {
  const Relocation *row;
  uint64_t value;
  char *at;
} Asked;

static tfm_status read_entry(Linker *l, const Entries *entries, const Elf64_Rela *entry, Asked *asked) {
  asked->row = relocation_find(cpu_family(), ELF64_R_TYPE(entry->r_info));
  if (!asked->row || asked->row->kind == RELOCATION_SLOT) return broken(l, "a relocation of an unknown kind");
  const uint64_t size = entries->section_size;
  if (entry->r_offset > size || size - entry->r_offset < asked->row->width)
    return broken(l, "a relocation outside of its section");
  asked->at = entries->section + entry->r_offset;
  const char *address = address_of(l, entries->file, (uint32_t)ELF64_R_SYM(entry->r_info));
  if (!address) return broken(l, "a symbol that nothing defines");
  asked->value = number_of(address) + (uint64_t)entry->r_addend;
  return TFM_OK;
}

/* The distance that is asked for at the place which an entry names: it has the other half of it, and stands before. */
static tfm_status find_pair(Linker *l, const Entries *entries, const Elf64_Rela *entry, Asked *asked) {
  for (const Elf64_Rela *other = entry; other-- > entries->items;) {
    if (number_of(entries->section) + other->r_offset != asked->value) continue;
    Asked pair;
    const tfm_status status = read_entry(l, entries, other, &pair);
    if (status != TFM_OK) return status;
    if (pair.row->base != BASE_RELATIVE) continue;
    asked->value = pair.value - number_of(pair.at);
    return TFM_OK;
  }
  return broken(l, "half of a relocation");
}

static tfm_status relocate(Linker *l, const Entries *entries, const Elf64_Rela *entry) {
  Asked asked;
  tfm_status status = read_entry(l, entries, entry, &asked);
  if (status == TFM_OK && asked.row->kind == RELOCATION_PAIRED) status = find_pair(l, entries, entry, &asked);
  if (status != TFM_OK) return status;
  const bool reaches = relocation_write(asked.row, asked.value, number_of(asked.at), asked.at);
  return reaches ? TFM_OK : broken(l, "a relocation out of reach");
}

static tfm_status relocate_section(Linker *l, const ObjectFile *file, const Elf64_Shdr *section) {
  if (section->sh_type == SHT_REL) return broken(l, "relocations of an unknown form");
  if (section->sh_type != SHT_RELA) return TFM_OK;
  if (section->sh_info >= file->n_sections) return broken(l, "relocations of no section");
  if (!file->addresses[section->sh_info]) return TFM_OK;
  const Entries entries = {file, section_table(file, section, sizeof(Elf64_Rela)),
                           section->sh_size / sizeof(Elf64_Rela), file->sections[section->sh_info].sh_size,
                           file->addresses[section->sh_info]};
  if (!entries.items) return broken(l, "a table that leaves the file");
  tfm_status status = TFM_OK;
  for (uint64_t i = 0; status == TFM_OK && i < entries.n; i++) status = relocate(l, &entries, &entries.items[i]);
  return status;
}

static tfm_status relocate_all(Linker *l) {
  tfm_status status = TFM_OK;
  for (size_t i = 0; i < l->n; i++)
    for (uint32_t s = 0; status == TFM_OK && s < l->files[i].n_sections; s++)
      status = relocate_section(l, &l->files[i], &l->files[i].sections[s]);
  return status;
}

// ---- all of it ----

/* Pages change from writable to executable, never both at once: hardened systems refuse such pages, and a bug could
 * not write into code. Most CPUs but those of x86 do not see by themselves that instructions were written. */
static tfm_status finish(Linker *l, const char *symbol, LoadedCode *code) {
  char *entry = find(l, symbol);
  if (!entry || entry >= l->memory + l->code_size) return broken(l, "it lacks its entry");
  __builtin___clear_cache(l->memory, l->memory + l->code_size);
  if (mprotect(l->memory, l->code_size, PROT_READ | PROT_EXEC) ||
      (l->size > l->code_size && mprotect(l->memory + l->code_size, l->size - l->code_size, PROT_READ)))
    return api_fault(
        l->error, TFM_E_ENV,
        "this system forbids code that is generated at run time; use a library made by `tfmc compile`");
  *code = (LoadedCode){.memory = l->memory, .size = l->size};
  memcpy(&code->entry, &entry, sizeof entry);
  return TFM_OK;
}

static tfm_status read_files(Linker *l, const Object *objects) {
  for (size_t i = 0; i < l->n; i++) {
    if (!object_file_read(&objects[i], &l->files[i])) return broken(l, "it is malformed, or for another machine");
    l->files[i].addresses = calloc(l->files[i].n_sections + 1, sizeof(char *));
    if (!l->files[i].addresses) return api_fault(l->error, TFM_E_NOMEM, "not enough memory to load the code");
  }
  return TFM_OK;
}

/* On failure everything is freed, and `code` is zeroes. */
tfm_status objects_load(const Object *objects, size_t n, OutsideFunctions outside, const char *symbol, LoadedCode *code,
                        tfm_error *error) {
  *code = (LoadedCode){0};
  Linker l = {.n = n, .outside = outside, .types = library_relocations(cpu_family()), .error = error,
              .files = calloc(n + 1, sizeof *l.files)};
  if (!l.types) return free(l.files), api_fault(error, TFM_E_ENV, "this machine is none that tfmc makes code for");
  if (!l.files) return api_fault(error, TFM_E_NOMEM, "not enough memory to load the code");
  tfm_status status = read_files(&l, objects);
  if (status == TFM_OK) status = make_image(&l);
  if (status == TFM_OK) status = relocate_all(&l);
  if (status == TFM_OK) status = finish(&l, symbol, code);
  if (status != TFM_OK && l.memory) munmap(l.memory, l.size);
  for (size_t i = 0; i < n; i++) free(l.files[i].addresses);
  free(l.files);
  return status;
}

void objects_unload(LoadedCode *code) {
  if (code->memory) munmap(code->memory, code->size);
  *code = (LoadedCode){0};
}

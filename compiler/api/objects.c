#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "api/objects.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "api/fault.h"
#include "api/object_file.h"

enum { PAGE = 4096, STUB_BYTES = 16 };

typedef struct Linker {
  ObjectFile *files;
  size_t n;
  const OutsideFunction *outside;
  size_t n_outside;
  char *memory;
  size_t code_size, size; /* code, with the stubs at its end, then the rest */
  tfm_error *error;
} Linker;

static tfm_status broken(Linker *l, const char *what) {
  return fault(l->error, TFM_E_INTERNAL, "the compiler made an object that cannot be loaded: %s", what);
}

// ---- where sections lie ----

static size_t round_up(size_t size, size_t alignment) { return (size + alignment - 1) & ~(alignment - 1); }

/* Gives each section of one kind its place from `at` on, as an offset or, once there is memory, as an address. */
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

static char *stub(const Linker *l, size_t number) {
  return l->memory + l->code_size - (l->n_outside - number) * STUB_BYTES;
}

/* jmp *0(%rip), then the address: calls reach 2 GiB only, and this library may lie farther away. */
static void write_stubs(Linker *l) {
  static const unsigned char jump[] = {0xff, 0x25, 0, 0, 0, 0};
  for (size_t i = 0; i < l->n_outside; i++) {
    memcpy(stub(l, i), jump, sizeof jump);
    memcpy(stub(l, i) + sizeof jump, &l->outside[i].address, sizeof l->outside[i].address);
  }
}

static void copy_sections(Linker *l) {
  for (size_t i = 0; i < l->n; i++)
    for (uint32_t s = 0; s < l->files[i].n_sections; s++) {
      const Elf64_Shdr *section = &l->files[i].sections[s];
      if (l->files[i].addresses[s] && section->sh_type == SHT_PROGBITS && section->sh_size)
        memcpy(l->files[i].addresses[s], l->files[i].object->data + section->sh_offset, section->sh_size);
    }
}

static tfm_status make_image(Linker *l) {
  l->code_size = round_up(round_up(place(l, true, 0), STUB_BYTES) + l->n_outside * STUB_BYTES, PAGE);
  l->size = round_up(place(l, false, l->code_size), PAGE);
  if (l->size > INT32_MAX) return broken(l, "it is too large");
  void *memory = mmap(NULL, l->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fault(l->error, TFM_E_NOMEM, "not enough memory for %zu bytes of code", l->size);
  l->memory = memory;
  place(l, true, 0);
  place(l, false, l->code_size);
  copy_sections(l);
  write_stubs(l);
  return TFM_OK;
}

// ---- symbols ----

static char *defined_at(const ObjectFile *file, const Elf64_Sym *symbol) {
  if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= file->n_sections) return NULL;
  char *section = file->addresses[symbol->st_shndx];
  return section && symbol->st_value <= file->sections[symbol->st_shndx].sh_size ? section + symbol->st_value : NULL;
}

/* What is called `name` in any of the objects, or outside. */
static char *find(const Linker *l, const char *name) {
  for (size_t i = 0; i < l->n; i++)
    for (uint32_t k = 0; k < l->files[i].n_symbols; k++) {
      const Elf64_Sym *symbol = &l->files[i].symbols[k];
      const char *other = symbol_name(&l->files[i], symbol);
      if (ELF64_ST_BIND(symbol->st_info) == STB_LOCAL || !other || strcmp(other, name) != 0) continue;
      char *address = defined_at(&l->files[i], symbol);
      if (address) return address;
    }
  for (size_t i = 0; i < l->n_outside; i++)
    if (strcmp(l->outside[i].name, name) == 0) return stub(l, i);
  return NULL;
}

static char *address_of(const Linker *l, const ObjectFile *file, uint32_t number) {
  if (number >= file->n_symbols) return NULL;
  const Elf64_Sym *symbol = &file->symbols[number];
  const char *name = symbol_name(file, symbol);
  return symbol->st_shndx == SHN_UNDEF && name ? find(l, name) : defined_at(file, symbol);
}

// ---- relocations ----

static tfm_status relocate(Linker *l, const ObjectFile *file, uint32_t target, const Elf64_Rela *entry) {
  uint64_t type = ELF64_R_TYPE(entry->r_info), size = file->sections[target].sh_size;
  size_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
  if (entry->r_offset > size || size - entry->r_offset < width) return broken(l, "a relocation outside of its section");
  char *at = file->addresses[target] + entry->r_offset, *address = address_of(l, file, (uint32_t)ELF64_R_SYM(entry->r_info));
  if (!address) return broken(l, "a symbol that nothing defines");
  uint64_t value = (uint64_t)(uintptr_t)address + (uint64_t)entry->r_addend;
  if (type == R_X86_64_64) {
    memcpy(at, &value, sizeof value);
    return TFM_OK;
  }
  int64_t distance = (int64_t)(value - (uint64_t)(uintptr_t)at);
  if (type == R_X86_64_PC64) {
    memcpy(at, &distance, sizeof distance);
    return TFM_OK;
  }
  if (type != R_X86_64_PC32 && type != R_X86_64_PLT32) return broken(l, "a relocation of an unknown kind");
  int32_t narrow = (int32_t)distance;
  if (narrow != distance) return broken(l, "a relocation out of reach");
  memcpy(at, &narrow, sizeof narrow);
  return TFM_OK;
}

static tfm_status relocate_section(Linker *l, const ObjectFile *file, const Elf64_Shdr *section) {
  if (section->sh_type == SHT_REL) return broken(l, "relocations of an unknown form");
  if (section->sh_type != SHT_RELA) return TFM_OK;
  if (section->sh_info >= file->n_sections) return broken(l, "relocations of no section");
  if (!file->addresses[section->sh_info]) return TFM_OK;
  const Elf64_Rela *entries = section_table(file, section, sizeof *entries);
  if (!entries) return broken(l, "a table that leaves the file");
  tfm_status status = TFM_OK;
  for (uint64_t i = 0; status == TFM_OK && i < section->sh_size / sizeof *entries; i++)
    status = relocate(l, file, section->sh_info, &entries[i]);
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

static tfm_status finish(Linker *l, const char *symbol, LoadedCode *code) {
  char *entry = find(l, symbol);
  if (!entry || entry >= l->memory + l->code_size) return broken(l, "it lacks its entry");
  if (mprotect(l->memory, l->code_size, PROT_READ | PROT_EXEC) ||
      (l->size > l->code_size && mprotect(l->memory + l->code_size, l->size - l->code_size, PROT_READ)))
    return fault(l->error, TFM_E_ENV, "this system lets no program make code while it runs; a library made by `tfmc compile` has it already");
  *code = (LoadedCode){.memory = l->memory, .size = l->size};
  memcpy(&code->entry, &entry, sizeof entry);
  return TFM_OK;
}

static tfm_status read_files(Linker *l, const Object *objects) {
  for (size_t i = 0; i < l->n; i++) {
    if (!object_file_read(&objects[i], &l->files[i])) return broken(l, "it is malformed, or for another machine");
    l->files[i].addresses = calloc(l->files[i].n_sections + 1, sizeof(char *));
    if (!l->files[i].addresses) return fault(l->error, TFM_E_NOMEM, "not enough memory to load the code");
  }
  return TFM_OK;
}

tfm_status objects_load(const Object *objects, size_t n, const OutsideFunction *outside, size_t n_outside,
                        const char *symbol, LoadedCode *code, tfm_error *error) {
  *code = (LoadedCode){0};
  Linker l = {.n = n, .outside = outside, .n_outside = n_outside, .error = error, .files = calloc(n + 1, sizeof *l.files)};
  if (!l.files) return fault(error, TFM_E_NOMEM, "not enough memory to load the code");
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

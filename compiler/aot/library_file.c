/* The file of a library, by way of its table of sections, or of a module, section by section. See library_file.h.
 *
 * Every offset and size is checked against the length of the file before it is used, and every name ends within what
 * was read. */
#include "aot/library_file.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "weights/files.h"

// ---- sections ----

/* MOST_SECTIONS: e_shnum has 16 bits. MOST_BYTES: a description holds the text of a model, some kilobytes; 256 MB
 * is beyond
 * any. MOST_NAMES: the names of 65,536 sections, 256 bytes each. */
enum { MOST_SECTIONS = 65536, MOST_BYTES = 256 << 20, MOST_NAMES = 16 << 20 };

bool file_begins_with(Arena *arena, const char *path, const char *bytes, size_t n) {
  Diag silent = diag_new(arena);
  InFile file;
  char begin[8];
  CHECK(n <= sizeof begin, "a magic of %zu bytes", n);
  if (!in_file_open(&file, &silent, path)) return false;
  bool is_same =
      file.size >= (int64_t)n && in_file_read(&file, &silent, 0, begin, n) && memcmp(begin, bytes, n) == 0;
  in_file_close(&file);
  return is_same;
}

static const char module_magic[8] = {0, 'a', 's', 'm', 1, 0, 0, 0};

static bool is_module_file(Arena *arena, const char *path) {
  return file_begins_with(arena, path, module_magic, sizeof module_magic);
}

bool is_library_file(Arena *arena, const char *path) {
  return file_begins_with(arena, path, ELFMAG, SELFMAG) || is_module_file(arena, path);
}

/* Reads `size` bytes from `offset` on and appends a NUL. NULL if they reach beyond the file or are more than any
 * library of ours has: a damaged table of sections must not make us allocate whatever it says. */
static char *read_range(Arena *arena, Diag *diag, const InFile *file, uint64_t offset, uint64_t size, uint64_t most) {
  uint64_t end = (uint64_t)file->size;
  if (size > most || offset > end || size > end - offset) return NULL;
  char *bytes = arena_alloc(arena, size + 1);
  return in_file_read(file, diag, (int64_t)offset, bytes, size) ? bytes : NULL;
}

/* The table of section names ends with a NUL, because read_range adds one, so strcmp stays within it. A section
 * without bytes in the file (SHT_NOBITS) has nothing to read. */
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

// ---- sections of modules ----

/* A number of seven bits a byte at *at, five bytes at most, which it passes. False: the file ends, or it is longer. */
static bool read_number(Arena *arena, Diag *diag, const InFile *file, uint64_t *at, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 35; shift += 7) {
    const char *byte = read_range(arena, diag, file, (*at)++, 1, 1);
    if (!byte) return false;
    *value |= (uint64_t)(*byte & 0x7f) << shift;
    if (!(*byte & 0x80)) return true;
  }
  return false;
}

/* Sections follow each other: a kind, a size, and of custom ones (0) a name before the bytes. */
static const char *module_section(Arena *arena, Diag *diag, const InFile *file, const char *name) {
  uint64_t at = sizeof module_magic, size, length;
  for (const char *kind; (kind = read_range(arena, diag, file, at++, 1, 1)); at += size) {
    if (!read_number(arena, diag, file, &at, &size)) return NULL;
    uint64_t in = at;
    if (*kind || !read_number(arena, diag, file, &in, &length) || length != strlen(name)) continue;
    const char *found = read_range(arena, diag, file, in, length, MOST_NAMES);
    if (!found || memcmp(found, name, length) != 0 || in + length > at + size) continue;
    return read_range(arena, diag, file, in + length, at + size - in - length, MOST_BYTES);
  }
  return NULL;
}

// ---- descriptions ----

const char *layout_text(Arena *arena, const uint8_t layout[16]) {
  char text[33] = "";
  for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", layout[i]);
  return arena_strdup(arena, text);
}

/* sscanf meets two hexadecimal digits each time: the text has been checked. */
static bool read_layout(const char *text, uint8_t layout[16]) {
  if (!text || strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32) return false;
  for (int i = 0; i < 16; i++) {
    unsigned byte = 0;
    sscanf(text + 2 * i, "%2x", &byte);
    layout[i] = (uint8_t)byte;
  }
  return true;
}

static const char *text_at(Arena *arena, const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? arena_strdup(arena, text) : NULL;
}

static bool read_instruction_sets(Arena *arena, LibraryFile *library, const json_t *list) {
  library->n_instruction_sets = (uint32_t)json_array_size(list);
  library->instruction_sets = ARENA_ARRAY(arena, const char *, library->n_instruction_sets);
  for (uint32_t i = 0; i < library->n_instruction_sets; i++) {
    const char *name = json_string_value(json_array_get(list, i));
    if (!name) return false;
    library->instruction_sets[i] = arena_strdup(arena, name);
  }
  return library->n_instruction_sets > 0;
}

static bool read_description(Arena *arena, LibraryFile *library, const json_t *json) {
  library->prefix = text_at(arena, json, "prefix");
  library->version = text_at(arena, json, "version");
  library->weights_bytes = (uint64_t)json_integer_value(json_object_get(json, "weights_bytes"));
  library->weights_embedded = json_is_true(json_object_get(json, "weights_embedded"));
  library->is_incremental = json_is_true(json_object_get(json_object_get(json, "generate"), "incremental"));
  return library->prefix && library->version &&
         read_layout(json_string_value(json_object_get(json, "layout")), library->layout) &&
         read_instruction_sets(arena, library, json_object_get(json, "instruction_sets"));
}

LibraryFile *library_file_open(Arena *arena, Diag *diag, const char *path) {
  InFile file;
  if (!in_file_open(&file, diag, path)) return NULL;
  int n_errors = diag->n_errors;
  size_t size = 0;
  const char *text = is_module_file(arena, path)
                         ? module_section(arena, diag, &file, LIBRARY_SECTION_OF_MODULES)
                         : elf_section(arena, diag, &file, LIBRARY_SECTION, &size);
  in_file_close(&file);
  return diag->n_errors == n_errors ? library_file_read(arena, diag, path, text) : NULL;
}

LibraryFile *library_file_read(Arena *arena, Diag *diag, const char *path, const char *text) {
  LibraryFile *library = ARENA_NEW(arena, LibraryFile);
  library->path = path;
  json_t *json = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
  library->description = json;
  if (json && read_description(arena, library, json)) return library;
  json_decref(json);
  diag_error_at(diag, path, DIAG_LIBRARY, "this is no library made by `tfmc compile`, or a damaged one");
  return NULL;
}

void library_file_close(LibraryFile *library) {
  if (library) json_decref((json_t *)library->description);
}

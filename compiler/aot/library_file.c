#include "aot/library_file.h"

#include <stdio.h>
#include <string.h>

#include "aot/elf_section.h"

const char *layout_text(Arena *arena, const uint8_t layout[16]) {
  char text[33] = "";
  for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", layout[i]);
  return arena_strdup(arena, text);
}

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
  if (!in_file_open(&file, diag, path, true)) return NULL;
  int n_errors = diag->n_errors;
  size_t size = 0;
  const char *text = elf_section(arena, diag, &file, LIBRARY_SECTION, &size);
  in_file_close(&file);
  if (diag->n_errors != n_errors) return NULL;
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

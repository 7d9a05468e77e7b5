/* In: the objects of a library. Out: a module. See wasm_module.h. */
#include "aot/wasm_module.h"

#include <string.h>

#include "aot/library_file.h"
#include "aot/runtime_archives.h"
#include "aot/wasm_objects.h"
#include "base/strbuf.h"

enum { PAGE = 65536, STACK = 512 << 10, ALIGNMENT = 64 };

/* Ids of sections, and codes of types and instructions that are written here. */
enum { CUSTOM, TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, ELEMENT = 9, CODE, DATA };
enum { I32 = 0x7f, FUNCTIONS = 0x70, I32_CONST = 0x41, END = 0x0b, OF_FUNCTION = 0, OF_MEMORY = 2 };

typedef struct Module {
  Arena *arena;
  WasmObjects objects;
  VEC(const WasmSymbol *) exports;
  VEC(WasmPiece *) functions, slots, segments; /* slots: from number 1 on */
  VEC(const WasmPiece *) imports;              /* functions, whose numbers come first */
  const WasmPiece *description;                /* goes into a section of its own */
  uint32_t memory_end;                         /* an address: behind data and zeroes */
  StrBuf out;
} Module;

// ---- numbers, in as few bytes as they need ----

static void wasm_write(StrBuf *out, uint32_t value) {
  do {
    const uint8_t byte = value & 0x7f;
    value >>= 7;
    strbuf_add_char(out, (char)(value ? byte | 0x80 : byte));
  } while (value);
}

static void wasm_write_signed(StrBuf *out, int32_t value) {
  for (;;) {
    const uint8_t byte = value & 0x7f;
    value = value < 0 ? ~(~value >> 7) : value >> 7;
    const bool is_last = value == (byte & 0x40 ? -1 : 0);
    strbuf_add_char(out, (char)(is_last ? byte : byte | 0x80));
    if (is_last) return;
  }
}

// ---- what goes in, and where ----

static void find_exports(Module *m) {
  const WasmObject *last = m->objects.items.items[m->objects.items.n - 1];
  for (size_t i = 0; i < last->symbols.n; i++) {
    const WasmSymbol *symbol = &last->symbols.items[i];
    if (symbol->kind == WASM_FUNCTION && symbol->piece && !symbol->is_local && !symbol->is_hidden)
      vec_push(m->arena, &m->exports, symbol);
  }
}

static bool need_exports(Module *m) {
  for (size_t i = 0; i < m->exports.n; i++)
    if (!wasm_objects_need(&m->objects, m->exports.items[i]->piece)) return false;
  return true;
}

static bool is_zeroes(const WasmPiece *segment) { return strncmp(segment->name, ".bss", 4) == 0; }

static void place_segments(Module *m, bool zeroes) {
  for (size_t i = 0; i < m->objects.items.n; i++) {
    const WasmObject *object = m->objects.items.items[i];
    for (size_t k = 0; k < object->segments.n; k++) {
      WasmPiece *segment = object->segments.items[k];
      const bool describes = strcmp(segment->name, LIBRARY_SECTION) == 0;
      if (describes) m->description = segment;
      if (!segment->is_needed || describes || is_zeroes(segment) != zeroes) continue;
      m->memory_end = (m->memory_end + segment->alignment - 1) / segment->alignment * segment->alignment;
      segment->place = m->memory_end;
      m->memory_end += segment->size;
      if (!zeroes) vec_push(m->arena, &m->segments, segment);
    }
  }
}

static void number_functions(Module *m) {
  for (size_t i = 0; i < m->objects.imports.n; i++) {
    WasmPiece *import = m->objects.imports.items[i];
    if (!import->is_needed) continue;
    import->place = (uint32_t)m->imports.n;
    vec_push(m->arena, &m->imports, import);
  }
  for (size_t i = 0; i < m->objects.items.n; i++) {
    const WasmObject *object = m->objects.items.items[i];
    for (size_t k = 0; k < object->functions.n; k++) {
      WasmPiece *function = object->functions.items[k];
      if (!function->is_needed) continue;
      function->place = (uint32_t)(m->imports.n + m->functions.n);
      vec_push(m->arena, &m->functions, function);
    }
  }
}

// ---- numbers that relocations put in ----

static const WasmSymbol *symbol_of(const WasmPiece *piece, const WasmRelocation *relocation) {
  return &piece->object->symbols.items[relocation->index];
}

/* A slot is given when it is asked for first: code is written before the table. */
static uint32_t slot_of(Module *m, WasmPiece *function) {
  if (function->slot) return function->slot;
  vec_push(m->arena, &m->slots, function);
  return function->slot = (uint32_t)m->slots.n;
}

/* The one symbol that no object defines is where the data end. */
static uint32_t address_of(const Module *m, const WasmSymbol *symbol) {
  const WasmSymbol *target = wasm_defined(&m->objects, symbol);
  return target ? target->piece->place + target->offset : m->memory_end;
}

typedef enum What { WHAT_FUNCTION, WHAT_SLOT, WHAT_ADDRESS, WHAT_TYPE, WHAT_GLOBAL, WHAT_TABLE } What;
typedef enum How { HOW_LEB, HOW_SIGNED, HOW_WORD } How;

typedef struct Kind {
  How how;
  What what;
} Kind;

static Kind kind_of(uint8_t type) {
  switch (type) {
#define WASM_RELOCATION(name, number, how, what, addend) \
  case number: return (Kind){HOW_##how, WHAT_##what};
#include "aot/wasm_relocations.def"
  }
  return (Kind){HOW_LEB, WHAT_TABLE}; /* wasm_objects.c has refused it */
}

static uint32_t value_of(Module *m, const WasmPiece *piece, const WasmRelocation *relocation) {
  switch (kind_of(relocation->type).what) {
    case WHAT_FUNCTION: return wasm_defined(&m->objects, symbol_of(piece, relocation))->piece->place;
    case WHAT_SLOT: return slot_of(m, wasm_defined(&m->objects, symbol_of(piece, relocation))->piece);
    case WHAT_ADDRESS: return address_of(m, symbol_of(piece, relocation)) + (uint32_t)relocation->addend;
    case WHAT_TYPE: return piece->object->types[relocation->index];
    case WHAT_GLOBAL: case WHAT_TABLE: break; /* there is one of each */
  }
  return 0;
}

static void add_word(StrBuf *out, uint32_t value) {
  const char bytes[] = {(char)value, (char)(value >> 8), (char)(value >> 16), (char)(value >> 24)};
  strbuf_add_n(out, bytes, sizeof bytes);
}

/* The bytes of a number in an object: LEB128 that was stretched to five, or a word. */
enum { STRETCHED = 5, WORD = 4 };

static void add_piece(Module *m, StrBuf *out, const WasmPiece *piece) {
  uint32_t at = 0;
  for (uint32_t i = 0; i < piece->n_relocations; i++) {
    const WasmRelocation *relocation = &piece->relocations[i];
    const uint32_t place = relocation->offset - piece->offset, value = value_of(m, piece, relocation);
    const How how = kind_of(relocation->type).how;
    strbuf_add_n(out, (const char *)piece->bytes + at, place - at);
    if (how == HOW_LEB) wasm_write(out, value);
    else if (how == HOW_SIGNED) wasm_write_signed(out, (int32_t)value);
    else add_word(out, value);
    at = place + (how == HOW_WORD ? WORD : STRETCHED);
  }
  strbuf_add_n(out, (const char *)piece->bytes + at, piece->size - at);
}

// ---- sections ----

static void add_section(Module *m, uint8_t id, const StrBuf *content) {
  strbuf_add_char(&m->out, (char)id);
  wasm_write(&m->out, (uint32_t)content->length);
  strbuf_add_n(&m->out, content->text, content->length);
}

static void add_name(StrBuf *out, const char *name) {
  wasm_write(out, (uint32_t)strlen(name));
  strbuf_add(out, name);
}

static void add_imports(Module *m) {
  if (!m->imports.n) return;
  StrBuf text = strbuf_new(m->arena);
  wasm_write(&text, (uint32_t)m->imports.n);
  for (size_t i = 0; i < m->imports.n; i++) {
    add_name(&text, m->imports.items[i]->of_module);
    add_name(&text, m->imports.items[i]->import);
    strbuf_add_char(&text, OF_FUNCTION);
    wasm_write(&text, m->imports.items[i]->type);
  }
  add_section(m, IMPORT, &text);
}

static void add_types(Module *m) {
  StrBuf text = strbuf_new(m->arena);
  const Map *types = &m->objects.types;
  wasm_write(&text, (uint32_t)types->n);
  for (size_t i = 0; i < types->n; i++) strbuf_add_n(&text, types->items[i].key, types->items[i].length);
  add_section(m, TYPE, &text);
  add_imports(m);
  text = strbuf_new(m->arena);
  wasm_write(&text, (uint32_t)m->functions.n);
  for (size_t i = 0; i < m->functions.n; i++) wasm_write(&text, m->functions.items[i]->type);
  add_section(m, FUNCTION, &text);
}

/* Slot 0 is nobody's, as address 0 is: a null pointer to a function is a trap. */
static void add_table_and_memory(Module *m) {
  StrBuf text = strbuf_new(m->arena);
  const uint32_t n = (uint32_t)m->slots.n + 1;
  strbuf_add_n(&text, (const char[]){1, FUNCTIONS, 1}, 3);
  wasm_write(&text, n);
  wasm_write(&text, n);
  add_section(m, TABLE, &text);
  text = strbuf_new(m->arena);
  strbuf_add_n(&text, (const char[]){1, 0}, 2);
  wasm_write(&text, (m->memory_end + PAGE - 1) / PAGE);
  add_section(m, MEMORY, &text);
  text = strbuf_new(m->arena);
  strbuf_add_n(&text, (const char[]){1, I32, 1, I32_CONST}, 4);
  wasm_write_signed(&text, STACK);
  strbuf_add_char(&text, END);
  add_section(m, GLOBAL, &text);
}

static void add_exports(Module *m) {
  StrBuf text = strbuf_new(m->arena);
  wasm_write(&text, (uint32_t)m->exports.n + 1);
  add_name(&text, "memory");
  strbuf_add_n(&text, (const char[]){OF_MEMORY, 0}, 2);
  for (size_t i = 0; i < m->exports.n; i++) {
    add_name(&text, m->exports.items[i]->name);
    strbuf_add_char(&text, OF_FUNCTION);
    wasm_write(&text, m->exports.items[i]->piece->place);
  }
  add_section(m, EXPORT, &text);
}

static void add_elements(Module *m) {
  StrBuf text = strbuf_new(m->arena);
  strbuf_add_n(&text, (const char[]){1, 0, I32_CONST, 1, END}, 5);
  wasm_write(&text, (uint32_t)m->slots.n);
  for (size_t i = 0; i < m->slots.n; i++) wasm_write(&text, m->slots.items[i]->place);
  add_section(m, ELEMENT, &text);
}

static StrBuf code_of(Module *m) {
  StrBuf text = strbuf_new(m->arena);
  wasm_write(&text, (uint32_t)m->functions.n);
  for (size_t i = 0; i < m->functions.n; i++) {
    StrBuf body = strbuf_new(m->arena);
    add_piece(m, &body, m->functions.items[i]);
    wasm_write(&text, (uint32_t)body.length);
    strbuf_add_n(&text, body.text, body.length);
  }
  return text;
}

/* One segment, with zeroes between what has another alignment. */
static StrBuf data_of(Module *m) {
  StrBuf text = strbuf_new(m->arena), bytes = strbuf_new(m->arena);
  for (size_t i = 0; i < m->segments.n; i++) {
    while (STACK + bytes.length < m->segments.items[i]->place) strbuf_add_char(&bytes, 0);
    add_piece(m, &bytes, m->segments.items[i]);
  }
  strbuf_add_n(&text, (const char[]){1, 0, I32_CONST}, 3);
  wasm_write_signed(&text, STACK);
  strbuf_add_char(&text, END);
  wasm_write(&text, (uint32_t)bytes.length);
  strbuf_add_n(&text, bytes.text, bytes.length);
  return text;
}

static void add_description(Module *m) {
  if (!m->description) return;
  StrBuf text = strbuf_new(m->arena);
  add_name(&text, LIBRARY_SECTION_OF_MODULES);
  strbuf_add_n(&text, (const char *)m->description->bytes, m->description->size);
  add_section(m, CUSTOM, &text);
}

static Bytes write_module(Module *m) {
  m->memory_end = STACK;
  place_segments(m, false);
  place_segments(m, true);
  m->memory_end = (m->memory_end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  number_functions(m);
  const StrBuf code = code_of(m), data = data_of(m);
  m->out = strbuf_new(m->arena);
  strbuf_add_n(&m->out, "\0asm\1\0\0\0", 8);
  add_types(m);
  add_table_and_memory(m);
  add_exports(m);
  add_elements(m);
  add_section(m, CODE, &code);
  add_section(m, DATA, &data);
  add_description(m);
  return (Bytes){m->out.text, m->out.length};
}

Bytes wasm_module(Arena *arena, Diag *diag, BytesList objects) {
  Module m = {.arena = arena, .objects = wasm_objects_new(arena, diag)};
  RuntimeArchive runtime;
  if (!runtime_of_family(diag, TFM_FAMILY_WASM32, &runtime)) return (Bytes){0};
  for (size_t i = 0; i < objects.n; i++)
    if (!wasm_objects_add(&m.objects, objects.items[i])) return (Bytes){0};
  find_exports(&m);
  if (!wasm_objects_add_archive(&m.objects, runtime.objects) || !need_exports(&m)) return (Bytes){0};
  return write_module(&m);
}

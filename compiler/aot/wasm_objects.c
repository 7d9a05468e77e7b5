/* In: WebAssembly objects and archives of them. Out: their functions and segments, and which of them are needed. See
 * wasm_objects.h. */
#include "aot/wasm_objects.h"

#include <ar.h>
#include <stdlib.h>
#include <string.h>

#include "aot/wasm_numbers.h"

enum { PREAMBLE = 8 };
enum { IS_WEAK = 0x1, IS_LOCAL = 0x2, IS_HIDDEN = 0x4, IS_UNDEFINED = 0x10, HAS_NAME = 0x40 }; /* flags of symbols */
enum { SEGMENT_INFO = 5, INIT_FUNCTIONS = 6, SYMBOL_TABLE = 8 };                              /* parts of "linking" */

WasmObjects wasm_objects_new(Arena *arena, Diag *diag) {
  return (WasmObjects){.arena = arena, .diag = diag, .types = map_new(arena), .definitions = map_new(arena)};
}

typedef struct Import { /* of an object: a function */
  const char *module, *name;
  uint32_t type;
} Import;

/* The object that is read, and what of it is known. */
typedef struct Reading {
  WasmObjects *objects;
  WasmObject *object;
  VEC(Import) imports;              /* functions */
  VEC(uint32_t) function_types;     /* of those that are defined */
  VEC(uint32_t) sections;           /* ids, by number */
} Reading;

static bool refuse(const Reading *r, const char *what, unsigned number) {
  diag_error_at(r->objects->diag, NULL, DIAG_TOOL, "a WebAssembly object has %s %u, which tfmc cannot link", what,
                number);
  return false;
}

static const char *name_at(const Reading *r, WasmCursor *at) {
  const uint32_t length = wasm_read(at);
  const char *name = arena_strndup(r->objects->arena, (const char *)at->now, length);
  at->now += length;
  return name;
}

// ---- sections ----

static void read_types(Reading *r, WasmCursor at) {
  WasmObject *object = r->object;
  object->n_types = wasm_read(&at);
  uint32_t *types = ARENA_ARRAY(r->objects->arena, uint32_t, object->n_types);
  for (uint32_t i = 0; i < object->n_types; i++) {
    const uint8_t *begin = at.now++;
    for (int list = 0; list < 2; list++) {
      const uint32_t n = wasm_read(&at);
      at.now += n;
    }
    Map *all = &r->objects->types;
    const size_t size = (size_t)(at.now - begin);
    MapEntry *known = map_find(all, begin, size);
    if (!known) known = map_put_n(all, begin, size, NULL);
    types[i] = (uint32_t)(known - all->items);
  }
  object->types = types;
}

static void skip_limits(WasmCursor *at) {
  const uint32_t has_most = wasm_read(at) & 1;
  wasm_read(at);
  if (has_most) wasm_read(at);
}

/* Functions have numbers; memory, table and stack pointer are there once in a module. */
static void read_imports(Reading *r, WasmCursor at) {
  for (uint32_t n = wasm_read(&at); n; n--) {
    Import import = {.module = name_at(r, &at)};
    import.name = name_at(r, &at);
    const uint8_t kind = *at.now++;
    if (kind == 0) {
      import.type = r->object->types[wasm_read(&at)];
      vec_push(r->objects->arena, &r->imports, import);
    } else if (kind == 3) {
      at.now += 2;
    } else {
      at.now += kind == 1;
      skip_limits(&at);
    }
  }
  r->object->n_imports = (uint32_t)r->imports.n;
}

static void read_functions(Reading *r, WasmCursor at) {
  for (uint32_t n = wasm_read(&at); n; n--) vec_push(r->objects->arena, &r->function_types, wasm_read(&at));
}

static WasmPiece *new_piece(Reading *r, const uint8_t *section, const uint8_t *bytes, uint32_t size) {
  WasmPiece *piece = ARENA_NEW(r->objects->arena, WasmPiece);
  *piece = (WasmPiece){.object = r->object, .bytes = bytes, .size = size, .offset = (uint32_t)(bytes - section)};
  return piece;
}

static void read_code(Reading *r, WasmCursor at) {
  const uint8_t *section = at.now;
  const uint32_t n = wasm_read(&at);
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t size = wasm_read(&at);
    WasmPiece *piece = new_piece(r, section, at.now, size);
    piece->is_function = true;
    piece->type = r->object->types[r->function_types.items[i]];
    vec_push(r->objects->arena, &r->object->functions, piece);
    at.now += size;
  }
}

/* Segments lie in memory number 0 at an address that is written anew: i32.const, a number, end. */
static bool read_data(Reading *r, WasmCursor at) {
  const uint8_t *section = at.now;
  for (uint32_t n = wasm_read(&at); n; n--) {
    const uint32_t mode = wasm_read(&at);
    if (mode) return refuse(r, "a segment of kind", mode);
    at.now++;
    wasm_read(&at);
    at.now++;
    const uint32_t size = wasm_read(&at);
    vec_push(r->objects->arena, &r->object->segments, new_piece(r, section, at.now, size));
    at.now += size;
  }
  return true;
}

// ---- the section "linking" ----

static void read_segment_info(Reading *r, WasmCursor at) {
  const uint32_t n = wasm_read(&at);
  for (uint32_t i = 0; i < n; i++) {
    WasmPiece *segment = r->object->segments.items[i];
    segment->name = name_at(r, &at);
    segment->alignment = UINT32_C(1) << wasm_read(&at);
    wasm_read(&at);
  }
}

/* What stands for a function that the engine gives: C says so by naming its module. Others import what other objects
 * define from "env". NULL: it is one of those. */
static WasmPiece *import_of(Reading *r, const Import *import) {
  WasmObjects *objects = r->objects;
  if (strcmp(import->module, "env") == 0) return NULL;
  for (size_t i = 0; i < objects->imports.n; i++) {
    WasmPiece *piece = objects->imports.items[i];
    if (strcmp(piece->of_module, import->module) == 0 && strcmp(piece->import, import->name) == 0) return piece;
  }
  WasmPiece *piece = ARENA_NEW(objects->arena, WasmPiece);
  *piece = (WasmPiece){.object = r->object, .is_function = true, .type = import->type, .of_module = import->module,
                       .import = import->name};
  vec_push(objects->arena, &objects->imports, piece);
  return piece;
}

static void read_function_symbol(Reading *r, WasmCursor *at, uint32_t flags, WasmSymbol *symbol) {
  const WasmObject *object = r->object;
  const uint32_t index = wasm_read(at);
  const bool is_named = !(flags & IS_UNDEFINED) || flags & HAS_NAME;
  symbol->name = is_named ? name_at(r, at) : symbol->kind == WASM_FUNCTION ? r->imports.items[index].name : "";
  if (symbol->kind != WASM_FUNCTION) return;
  symbol->piece = flags & IS_UNDEFINED ? import_of(r, &r->imports.items[index])
                                       : object->functions.items[index - object->n_imports];
}

static void read_data_symbol(Reading *r, WasmCursor *at, uint32_t flags, WasmSymbol *symbol) {
  symbol->name = name_at(r, at);
  if (flags & IS_UNDEFINED) return;
  symbol->piece = r->object->segments.items[wasm_read(at)];
  symbol->offset = wasm_read(at);
  wasm_read(at);
}

static bool read_symbols(Reading *r, WasmCursor at) {
  for (uint32_t n = wasm_read(&at); n; n--) {
    WasmSymbol symbol = {.kind = *at.now++};
    const uint32_t flags = wasm_read(&at);
    symbol.is_weak = flags & IS_WEAK;
    symbol.is_local = flags & IS_LOCAL;
    symbol.is_hidden = flags & IS_HIDDEN;
    if (symbol.kind == WASM_DATA) read_data_symbol(r, &at, flags, &symbol);
    else if (symbol.kind == WASM_SECTION) wasm_read(&at), symbol.name = "";
    else if (symbol.kind == WASM_TAG) return refuse(r, "a symbol of kind", symbol.kind);
    else read_function_symbol(r, &at, flags, &symbol);
    vec_push(r->objects->arena, &r->object->symbols, symbol);
  }
  return true;
}

static bool read_linking(Reading *r, WasmCursor at) {
  const uint32_t version = wasm_read(&at);
  if (version != 2) return refuse(r, "a linking section of version", version);
  while (at.now < at.end) {
    const uint32_t type = *at.now++, size = wasm_read(&at);
    const WasmCursor part = {at.now, at.now + size};
    if (type == INIT_FUNCTIONS) return refuse(r, "constructors, a part", type);
    if (type == SEGMENT_INFO) read_segment_info(r, part);
    if (type == SYMBOL_TABLE && !read_symbols(r, part)) return false;
    at.now += size;
  }
  return true;
}

// ---- relocations ----

static bool has_addend(uint8_t type, bool *is_known) {
  *is_known = true;
  switch (type) {
#define WASM_RELOCATION(name, number, how, what, addend) \
  case number: return addend;
#include "aot/wasm_relocations.def"
    default: *is_known = false;
  }
  return false;
}

/* Each piece gets those that lie in it: both stand in the order of their offsets. */
static void share_out(WasmPiece **pieces, size_t n_pieces, const WasmRelocation *all, size_t n) {
  size_t next = 0;
  for (size_t i = 0; i < n_pieces; i++) {
    WasmPiece *piece = pieces[i];
    while (next < n && all[next].offset < piece->offset) next++;
    piece->relocations = all + next;
    const size_t first = next;
    while (next < n && all[next].offset < piece->offset + piece->size) next++;
    piece->n_relocations = (uint32_t)(next - first);
  }
}

static bool read_relocations(Reading *r, WasmCursor at) {
  enum { CODE = 10, DATA = 11 };
  const uint32_t id = r->sections.items[wasm_read(&at)], n = wasm_read(&at);
  if (id != CODE && id != DATA) return true; /* of tables for debuggers */
  WasmRelocation *all = ARENA_ARRAY(r->objects->arena, WasmRelocation, n);
  for (uint32_t i = 0; i < n; i++) {
    bool is_known;
    all[i].type = *at.now++;
    all[i].offset = wasm_read(&at);
    all[i].index = wasm_read(&at);
    const bool adds = has_addend(all[i].type, &is_known);
    if (!is_known) return refuse(r, "a relocation of type", all[i].type);
    if (adds) all[i].addend = (int32_t)wasm_read_signed(&at);
  }
  WasmObject *object = r->object;
  if (id == CODE) share_out(object->functions.items, object->functions.n, all, n);
  else share_out(object->segments.items, object->segments.n, all, n);
  return true;
}

// ---- one object ----

static bool read_custom(Reading *r, WasmCursor at) {
  const char *name = name_at(r, &at);
  if (strcmp(name, "linking") == 0) return read_linking(r, at);
  return strncmp(name, "reloc.", 6) != 0 || read_relocations(r, at);
}

/* Sections stand in the order that their meaning needs: types, imports, functions, code, data, linking, relocations. */
static bool read_section(Reading *r, uint8_t id, WasmCursor at) {
  enum { CUSTOM, TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, START, ELEMENT, CODE, DATA, DATA_COUNT };
  vec_push(r->objects->arena, &r->sections, id);
  switch (id) {
    case CUSTOM: return read_custom(r, at);
    case TYPE: read_types(r, at); break;
    case IMPORT: read_imports(r, at); break;
    case FUNCTION: read_functions(r, at); break;
    case CODE: read_code(r, at); break;
    case DATA: return read_data(r, at);
    case ELEMENT: /* it is made anew */
    case DATA_COUNT: break;
    default: return refuse(r, "a section of kind", id);
  }
  return true;
}

static void add_definitions(WasmObjects *objects, WasmObject *object) {
  for (size_t i = 0; i < object->symbols.n; i++) {
    WasmSymbol *symbol = &object->symbols.items[i];
    if (symbol->piece && !symbol->is_local && !map_has(&objects->definitions, symbol->name))
      map_put(&objects->definitions, symbol->name, symbol);
  }
}

bool wasm_objects_add(WasmObjects *objects, Bytes bytes) {
  Reading r = {.objects = objects, .object = ARENA_NEW(objects->arena, WasmObject)};
  WasmCursor at = {bytes.data, (const uint8_t *)bytes.data + bytes.size};
  at.now += PREAMBLE;
  while (at.now < at.end) {
    const uint8_t id = *at.now++;
    const uint32_t size = wasm_read(&at);
    if (!read_section(&r, id, (WasmCursor){at.now, at.now + size})) return false;
    at.now += size;
  }
  vec_push(objects->arena, &objects->items, r.object);
  add_definitions(objects, r.object);
  return true;
}

/* Members whose name begins with a slash and nothing else before the blank are tables of the archive itself. */
bool wasm_objects_add_archive(WasmObjects *objects, Bytes archive) {
  const char *at = archive.data, *end = at + archive.size;
  at += SARMAG;
  while ((size_t)(end - at) > sizeof(struct ar_hdr)) {
    struct ar_hdr header;
    memcpy(&header, at, sizeof header);
    const size_t size = strtoul(header.ar_size, NULL, 10);
    at += sizeof header;
    const bool is_table = header.ar_name[0] == '/' && strchr(" /", header.ar_name[1]);
    if (!is_table && !wasm_objects_add(objects, (Bytes){at, size})) return false;
    at += size + size % 2;
  }
  return true;
}

// ---- what is needed ----

const WasmSymbol *wasm_defined(const WasmObjects *objects, const WasmSymbol *symbol) {
  return symbol->piece ? symbol : map_get(&objects->definitions, symbol->name);
}

static void mark(WasmObjects *objects, WasmPiece *piece) {
  if (piece->is_needed) return;
  piece->is_needed = true;
  vec_push(objects->arena, &objects->needed, piece);
}

static bool needs_piece(uint8_t type) {
  switch (type) {
#define NEEDS_FUNCTION true
#define NEEDS_SLOT true
#define NEEDS_ADDRESS true
#define NEEDS_TYPE false
#define NEEDS_GLOBAL false
#define NEEDS_TABLE false
#define WASM_RELOCATION(name, number, how, what, addend) \
  case number: return NEEDS_##what;
#include "aot/wasm_relocations.def"
  }
  return false;
}

/* The vector grows while it is walked. */
bool wasm_objects_need(WasmObjects *objects, WasmPiece *first) {
  size_t next = objects->needed.n;
  mark(objects, first);
  for (; next < objects->needed.n; next++) {
    const WasmPiece *piece = objects->needed.items[next];
    for (uint32_t i = 0; i < piece->n_relocations; i++) {
      const WasmRelocation *relocation = &piece->relocations[i];
      if (!needs_piece(relocation->type)) continue;
      const WasmSymbol *symbol = &piece->object->symbols.items[relocation->index];
      const WasmSymbol *target = wasm_defined(objects, symbol);
      if (target) {
        mark(objects, target->piece);
      } else if (strcmp(symbol->name, WASM_HEAP_BASE) != 0) {
        diag_error_at(objects->diag, NULL, DIAG_TOOL, "nothing defines '%s', which the module needs", symbol->name);
        return false;
      }
    }
  }
  return true;
}

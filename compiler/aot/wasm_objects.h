/* Wasm objects: what the writer of modules reads. Objects and archives of objects, as LLVM writes them for WebAssembly
 * ("Tool conventions", linking section version 2), are taken apart into functions and segments of data; symbols are
 * looked up; what the exports need is found.
 *
 * In: objects that LLVM made in this process and the archive of the runtime, which the build made: they are taken for
 * whole. Out: the functions and segments that are needed, in the order of the objects, what the engine must give, and
 * for each relocation what it refers to. Refused, by name: what nothing defines, and what modules of ours never have
 * (constructors, sections and relocations of other kinds). Everything lives in the arena, and refers to the bytes that
 * were given. */
#ifndef TFM_AOT_WASM_OBJECTS_H
#define TFM_AOT_WASM_OBJECTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/map.h"
#include "base/vec.h"
#include "diag/diag.h"

typedef struct WasmObject WasmObject;

typedef struct WasmRelocation {
  uint8_t type;    /* one of wasm_relocations.def */
  uint32_t offset; /* in its section */
  uint32_t index;  /* of a symbol, or of a type */
  int32_t addend;
} WasmRelocation;

/* A function or a segment of data. */
typedef struct WasmPiece {
  WasmObject *object;
  const char *name; /* of a segment */
  const uint8_t *bytes;
  uint32_t size, offset; /* offset: in its section of the object */
  const WasmRelocation *relocations;
  uint32_t n_relocations;
  uint32_t type;      /* of a function: a number in WasmObjects.types */
  uint32_t alignment; /* of a segment: a power of two */
  bool is_function, is_needed;
  const char *of_module, *import; /* of a function that the engine gives: the module and its name there; else NULL */
  uint32_t place; /* in the module: a function's number, a segment's address */
  uint32_t slot;  /* of a function: its place in the table; 0: nothing takes its address */
} WasmPiece;

typedef enum WasmSymbolKind {
  WASM_FUNCTION, WASM_DATA, WASM_GLOBAL, WASM_SECTION, WASM_TAG, WASM_TABLE
} WasmSymbolKind;

typedef struct WasmSymbol {
  uint8_t kind;
  bool is_local, is_weak, is_hidden;
  const char *name;
  WasmPiece *piece; /* NULL: another object defines it, or it is no function or data */
  uint32_t offset;  /* in the segment */
} WasmSymbol;

struct WasmObject {
  uint32_t n_types, n_imports; /* n_imports: of functions */
  const uint32_t *types;       /* numbers in WasmObjects.types */
  VEC(WasmPiece *) functions;
  VEC(WasmPiece *) segments;
  VEC(WasmSymbol) symbols;
};

typedef struct WasmObjects {
  Arena *arena;
  Diag *diag;
  VEC(WasmObject *) items;
  Map types;       /* of functions, as the bytes that describe them */
  Map definitions; /* WasmSymbol by name */
  VEC(WasmPiece *) imports; /* what the engine gives, each once */
  VEC(WasmPiece *) needed;
} WasmObjects;

/* Nothing yet. */
WasmObjects wasm_objects_new(Arena *arena, Diag *diag);
/* Adds an object. Of definitions with the same name the first one counts. False after an error. */
bool wasm_objects_add(WasmObjects *objects, Bytes bytes);
/* Adds the objects of an archive. */
bool wasm_objects_add_archive(WasmObjects *objects, Bytes archive);
/* Marks a piece and all that it refers to. False after an error. */
bool wasm_objects_need(WasmObjects *objects, WasmPiece *piece);
/* What a symbol of an object stands for. NULL: nothing defines it. */
const WasmSymbol *wasm_defined(const WasmObjects *objects, const WasmSymbol *symbol);

#define WASM_HEAP_BASE "__heap_base" /* where the data end; the writer of modules defines it */

#endif

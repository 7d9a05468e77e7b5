/* Wasm module: a WebAssembly module made of objects and the runtime, without a linker.
 *
 * In: the objects of a library, the last of which has the functions that are exported. Out: the bytes of the module, in
 * the arena: it imports nothing, exports these functions and its memory, and says what it is in a section "tfm"
 * (library_file.h). In memory the stack lies first, so that one that overflows is a trap and no damage; then data, then
 * what malloc gives. Equal input gives equal bytes. Refused: what wasm_objects.h refuses. */
#ifndef TFM_AOT_WASM_MODULE_H
#define TFM_AOT_WASM_MODULE_H

#include "base/bytes.h"
#include "diag/diag.h"

/* NULL data after an error. */
Bytes wasm_module(Arena *arena, Diag *diag, BytesList objects);

#endif

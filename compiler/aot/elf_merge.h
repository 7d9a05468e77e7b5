/* ELF merge: several objects become one, as `ld -r` would do it.
 *
 * In: objects that LLVM made in this process, for one machine; an ending for names. Out: an object in the arena, in
 * which sections of one name follow each other in the order of the objects, and each name that is seen by others has
 * the ending. Refused, by name: what elf_objects_add refuses. Sections for debuggers are left out. */
#ifndef TFM_AOT_ELF_MERGE_H
#define TFM_AOT_ELF_MERGE_H

#include "base/bytes.h"
#include "diag/diag.h"

/* NULL data after an error. */
Bytes elf_merge(Arena *arena, Diag *diag, BytesList objects, const char *ending);

#endif

/* Link: objects and the runtime become a shared library, by the system's C compiler.
 *
 * In: object files in memory. Out: the bytes of the library, in the arena. The compiler is started with an argument
 * list, never through a shell; what it reads are files without names, and what it writes is removed again, also when
 * this process is interrupted. Refused: nothing but what the compiler refuses; its messages are then shown as notes. */
#ifndef TFM_AOT_LINK_H
#define TFM_AOT_LINK_H

#include "base/bytes.h"
#include "diag/diag.h"

/* Whether a program of this name is in PATH. */
bool compiler_is_there(const char *name);
/* Links a shared library that exports `prefix`_* alone and has the name `soname`; `compiler` is a path or a name to be
 * looked up in PATH. The runtime of the objects' family goes in. NULL data after an error. */
Bytes link_library(Arena *arena, Diag *diag, const char *compiler, const char *prefix, const char *soname,
                   BytesList objects);
/* Links several objects into one that is relocatable, for users who link it with the runtime archive themselves. */
Bytes link_object(Arena *arena, Diag *diag, const char *compiler, const Bytes *objects, size_t n_objects);

#endif

/* AOT: a model compiled ahead of time, as a library that needs neither the compiler nor LLVM.
 *
 * In: plans of one model for one or more instruction sets, and packed weights if they are to be embedded. Out: object
 * code, a library and a header, as bytes in the arena; the caller writes the files. Kernels may come from the cache
 * of generated code, and go there. The same input gives the same bytes, with the cache too: nothing of the machine, the
 * time or the folder goes in. Refuses only what the tools refuse (DIAG_TOOL): LLVM
 * without a back end, a C compiler that cannot be started or cannot link. */
#ifndef TFM_AOT_AOT_H
#define TFM_AOT_AOT_H

#include "aot/description.h"
#include "aot/header.h"
#include "aot/link.h"
#include "aot/module_loader.h"

/* Makes the objects: one with the kernels of each instruction set (several for a module, none where there are no
 * kernels), then the rest. No items after an error. */
BytesList aot_objects(Arena *arena, Diag *diag, const LibraryParts *parts);
/* Makes a shared library with this soname. compiler: the C compiler, which links; NULL: the library is written without
 * one. NULL data after an error. */
Bytes aot_library(Arena *arena, Diag *diag, const LibraryParts *parts, const char *compiler, const char *soname);
/* Makes a WebAssembly module of one instruction set. NULL data after an error. */
Bytes aot_module(Arena *arena, Diag *diag, const LibraryParts *parts);
/* The JavaScript beside the modules of a model, and its types. */
void aot_module_texts(StrBuf *loader, StrBuf *types, const LibraryParts *parts, const ModuleFiles *files);
/* Makes one object, which the user links with the runtime archive. NULL data after an error. */
Bytes aot_object(Arena *arena, Diag *diag, const LibraryParts *parts, const char *compiler);
void aot_header(StrBuf *out, const LibraryParts *parts);

/* Appends the kernels of a plan as LLVM IR or assembly. False after an error. */
bool code_text(Diag *diag, const Plan *plan, bool assembly, StrBuf *text);

#endif

/* Blob: C structs as constants of a module.
 *
 * In: an array of plain structs in this process's memory, and where in it pointers stand with what they must point to.
 * Out: a private constant with the same bytes, pointers replaced. Target and host share sizes and alignments of the
 * types (all targets are LP64). */
#ifndef TFM_AOT_BLOB_H
#define TFM_AOT_BLOB_H

#include <llvm-c/Core.h>

#include "base/vec.h"

typedef struct BlobPointer {
  size_t offset;      /* of a pointer in the bytes */
  LLVMValueRef value; /* a constant of pointer type */
} BlobPointer;

typedef struct Blob { /* being collected */
  Arena *arena;
  LLVMModuleRef module;
  VEC(BlobPointer) pointers; /* by rising offset */
} Blob;

Blob blob_new(Arena *arena, LLVMModuleRef module);
/* The pointer at `offset` will be `value`; NULL: a null pointer. */
void blob_pointer(Blob *blob, size_t offset, LLVMValueRef value);
/* The pointer at `offset` will be a text; NULL: a null pointer. */
void blob_text(Blob *blob, size_t offset, const char *text);
/* The constant. size 0 gives a null pointer. */
LLVMValueRef blob_finish(Blob *blob, const char *name, const void *bytes, size_t size);

/* A private constant text. */
LLVMValueRef module_text(LLVMModuleRef module, const char *text);
LLVMValueRef module_null(LLVMModuleRef module);

#endif

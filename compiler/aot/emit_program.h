/* Programs as constants: the C structs of tfm/abi/program.h and tfm/abi/library.h become initialised data of a module.
 *
 * In: arrays of plain structs in this process's memory, and where in them pointers stand with what they must point to.
 * Out: private constants with the same bytes and relocated pointers, and packed tables (packed_tables.h); the module
 * owns them. Target and host must agree on sizes and alignments; they do, because every target is LP64 and
 * little-endian, like the hosts that the compiler runs on. Refuses nothing. */
#ifndef TFM_AOT_EMIT_PROGRAM_H
#define TFM_AOT_EMIT_PROGRAM_H

#include <llvm-c/Core.h>

#include "aot/packed_tables.h"
#include "base/vec.h"
#include "plan/plan_decoding.h"
#include "tfm/abi/library.h"

// ---- blobs ----

typedef struct BlobPointer {
  size_t offset;      /* of a pointer in the bytes */
  LLVMValueRef value; /* a constant of pointer type */
} BlobPointer;

typedef struct Blob { /* a constant that is being put together */
  Arena *arena;
  LLVMModuleRef module;
  VEC(BlobPointer) pointers; /* by rising offset */
} Blob;

Blob blob_new(Arena *arena, LLVMModuleRef module);
/* The pointer at `offset` will be `value`; NULL: a null pointer. */
void blob_pointer(Blob *blob, size_t offset, LLVMValueRef value);
/* The pointer at `offset` will be a text; NULL: a null pointer. */
void blob_text(Blob *blob, size_t offset, const char *text);
/* Ends the blob: returns the constant, or a null pointer if `size` is 0. */
LLVMValueRef blob_finish(Blob *blob, const char *name, const void *bytes, size_t size);
/* Returns a constant array without pointers. */
LLVMValueRef blob_plain(Arena *arena, LLVMModuleRef module, const char *name, const void *bytes, size_t size);
/* The same, where kernels read it: it begins with a cache line. */
LLVMValueRef blob_weights(Arena *arena, LLVMModuleRef module, const char *name, const void *bytes, size_t size);

LLVMValueRef module_text(LLVMModuleRef module, const char *text);
LLVMValueRef module_null(LLVMModuleRef module);

// ---- programs ----

/* A function of the runtime. Its name is what makes the linker take it from there. Only its address is taken, so its
 * type is any. */
LLVMValueRef runtime_function(LLVMModuleRef module, const char *name);

/* Where programs of an instruction set find functions. */
typedef struct ProgramFunctions {
  LLVMModuleRef module;
  const char *suffix; /* of the names of their kernels, which other objects define */
  DriverSet drivers;  /* those that are needed: of plan_drivers, all of the library's */
} ProgramFunctions;

/* Returns a constant tfm_program, whose tables go to `packed`, for the tfm_program at `base` of a struct. */
LLVMValueRef emit_program(PackedTables *packed, size_t base, const Plan *plan, const ProgramFunctions *of);
/* Ends tables: a tfm_packed_tables, to be added to the blob of several, at `offset`. */
void emit_packed_tables(Blob *blob, size_t offset, PackedTables *packed, tfm_packed_tables *made);
/* The same of a program, which is the last of its tables. */
void emit_packed_program(Blob *blob, size_t offset, const Plan *plan, const ProgramFunctions *of,
                         tfm_packed_tables *made);
/* Returns a constant tfm_decoding with its two programs; tables are those of a tfm_model_programs. */
LLVMValueRef emit_decoding(PackedTables *packed, const DecodingPlan *plan, const ProgramFunctions *of);
/* Returns a constant tfm_generation; `forward` is the program that it generates with. */
LLVMValueRef emit_generation(Arena *arena, LLVMModuleRef module, const tfm_generation *generation,
                             const tfm_program *forward);

#endif

/* tfm/library.h: what a compiled library holds, and the functions behind its <model>_ functions. C99.
 *
 * A library made by `tfmc compile` contains one constant tfm_library, the runtime, and one small function per row of
 * library_functions.def that passes the tfm_library (or nothing) and its own arguments on to a function below. Users
 * see the generated header only, or tfm/tfm.h; this header is for the compiler and the runtime. */
#ifndef TFM_LIBRARY_H
#define TFM_LIBRARY_H

#include "tfm/program.h"
#include "tfm/tfm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TFM_LIBRARY_ABI = 1 };

/* Where a member stands in the model's args struct: int64_t sizes, then for each input a pointer, for each output a
 * pointer and an int64_t capacity in elements. Offsets in bytes; the first member is size_t struct_size. */
typedef struct tfm_args_layout {
  uint32_t struct_size;
  const uint32_t *symbols;    /* n_symbols */
  const uint32_t *inputs;     /* n_inputs */
  const uint32_t *outputs;    /* n_outputs: the pointer */
  const uint32_t *capacities; /* n_outputs */
} tfm_args_layout;

typedef struct tfm_library {
  uint32_t abi;                /* TFM_LIBRARY_ABI */
  const char *model;           /* the prefix of its functions */
  const char *version;         /* of the compiler */
  uint32_t n_programs;         /* one per instruction set, the best first; equal but for their kernels and tiles */
  const tfm_program *const *programs;
  tfm_args_layout args;
  uint8_t layout[16];          /* hash of the layout of the packed weights; a .tfmw file must have the same */
  const void *weights;         /* embedded packed weights, 64-byte aligned; NULL: they come from a .tfmw file */
  const char *description;     /* JSON: model, inputs, outputs, sizes, instruction sets, weights, FLOPs; for tools */
} tfm_library;

/* The functions behind <model>_open ...; see the generated header or tfm.h for what they promise. */
tfm_status tfm_library_open(const tfm_library *library, const char *path, tfm_model **model, tfm_error *error);
tfm_status tfm_library_open_memory(const tfm_library *library, const void *bytes, uint64_t size, tfm_model **model,
                                   tfm_error *error);
tfm_status tfm_library_context_new(tfm_model *model, const tfm_context_options *options, tfm_context **context,
                                   tfm_error *error);
tfm_status tfm_library_forward(tfm_context *context, const void *args, tfm_error *error);
/* Makes room for the sizes of `args` (its pointers are not looked at): runs within them allocate nothing. */
tfm_status tfm_library_reserve(tfm_context *context, const void *args, tfm_error *error);
/* Bytes of workspace that a context with the default options needs for the sizes of `args`; -1 if one is out of range. */
int64_t tfm_library_workspace_bytes(const tfm_model *model, const void *args);
const char *tfm_library_version(const tfm_library *library);
const tfm_library *tfm_library_self(const tfm_library *library);

#ifdef __cplusplus
}
#endif
#endif

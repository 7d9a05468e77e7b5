/* tfm/library.h: what a compiled library holds, and the functions behind its <model>_ functions. C99.
 *
 * A library made by `tfmc compile` contains one constant tfm_library, the runtime, and one small function per row of
 * library_functions.def that passes the tfm_library (or nothing) and its own arguments on to a function below. Users
 * see the generated header only, or tfm/tfm.h; this header is for the compiler and the runtime. */
#ifndef TFM_LIBRARY_H
#define TFM_LIBRARY_H

#include "tfm/generate_types.h"
#include "tfm/program.h"
#include "tfm/tfm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TFM_LIBRARY_ABI = 4 };

/* Where a member stands in the model's args struct: int64_t sizes, then for each input a pointer, for each output a
 * pointer and an int64_t capacity in elements, then pointers to lengths. Offsets in bytes; the first member is size_t
 * struct_size. */
typedef struct tfm_args_layout {
  uint32_t struct_size;
  const uint32_t *symbols;    /* n_symbols */
  const uint32_t *inputs;     /* n_inputs */
  const uint32_t *outputs;    /* n_outputs: the pointer */
  const uint32_t *capacities; /* n_outputs */
} tfm_args_layout;

/* The generate block of a model, in terms of its forward program. */
typedef struct tfm_generation {
  uint32_t tokens;          /* the input that grows, by its number: i32 [batch, length] */
  uint32_t scores;          /* output f32 [batch, n, vocab]; the last of n is for the next token */
  uint32_t batch, length;   /* run-time sizes, by their numbers; batch TFM_NONE: one row */
  int64_t vocab;
  int64_t bos;              /* what rows begin with that have no prompt; TFM_NO_TOKEN: nothing */
  const uint8_t *item_axes; /* n_inputs: bit i is set if axis i holds the items of the batch, each dims[i] / batch long */
  const uint32_t *lengths;  /* n_symbols: where args point to the lengths of the items; 0: nowhere; NULL: of no size */
  tfm_generate_options defaults;
} tfm_generation;

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
  const tfm_generation *generation; /* NULL: the model has no generate block */
  const tfm_decoding *const *decodings; /* n_programs, with the same weights; NULL: all of forward runs for each token */
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
/* Of models with a generate block. `options` NULL: the block's. */
void tfm_library_generate_defaults(const tfm_library *library, tfm_generate_options *options);
tfm_status tfm_library_generate(tfm_context *context, const void *args, const int64_t *lengths,
                                const tfm_generate_options *options, tfm_generated *generated, tfm_error *error);
/* Of models with decodings: a decoder (tfm/decode.h) that belongs to the context. */
tfm_status tfm_library_begin(tfm_context *context, const void *args, int64_t max_rows, int64_t max_length,
                             tfm_error *error);
tfm_status tfm_library_join(tfm_context *context, int64_t item, int64_t *row, tfm_error *error);
tfm_status tfm_library_leave(tfm_context *context, int64_t row, tfm_error *error);
tfm_status tfm_library_step(tfm_context *context, int64_t n, const tfm_decoder_row *rows, int64_t kept, float *scores,
                            float *logsumexp, tfm_error *error);
tfm_status tfm_library_reorder(tfm_context *context, int64_t n, const int64_t *parents, tfm_error *error);
tfm_status tfm_library_truncate(tfm_context *context, int64_t row, int64_t length, tfm_error *error);
int64_t tfm_library_length(const tfm_context *context, int64_t row);
void tfm_library_end(tfm_context *context);

const char *tfm_library_version(const tfm_library *library);
const tfm_library *tfm_library_self(const tfm_library *library);

#ifdef __cplusplus
}
#endif
#endif

/* tfm/abi/library.h: what a compiled library holds, and the functions behind its <model>_ functions. C99.
 *
 * A library made by `tfmc compile` contains one constant tfm_library, the runtime, and one small function for each row
 * of library_functions.def that passes the tfm_library (or nothing) and its own arguments on to a function below.
 * Users see the generated header or tfm/tfm.h; this header is for the compiler and the runtime. */
#ifndef TFM_LIBRARY_H
#define TFM_LIBRARY_H

#include "tfm/generate_types.h"
#include "tfm/abi/packed_program.h"
#include "tfm/abi/program.h"
#include "tfm/abi/slot.h"
#include "tfm/tfm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TFM_LIBRARY_ABI = 9 }; /* goes up when a struct below or the meaning of a member changes */

/* Where the members of the model's args struct are (args.def), in bytes from its beginning: for each group an offset
 * for each symbol, input or output; 0: it has no such member. A group without any is NULL. Capacity 0: the caller
 * vouches for the room. */
typedef struct tfm_args_layout {
  uint32_t struct_size;
#define ARGS(group, per, which, name, text, number) TFM_SLOT(const uint32_t *group);
#include "tfm/abi/args.def"
  uint64_t number; /* made of all members: their order, types and names, and the shapes of tensors */
} tfm_args_layout;

/* The generate block of a model, in terms of its forward program. */
typedef struct tfm_generation {
  uint32_t tokens;          /* the decoder input, by its number: i32 [batch, length] */
  uint32_t scores;          /* the output with the logits, f32 [batch, n, vocab]: the last of n count */
  uint32_t batch, length;   /* run-time sizes, by their numbers; batch TFM_NONE: one row */
  int64_t vocab;
  int64_t bos;              /* the token that rows without a prompt begin with; TFM_NO_TOKEN: a prompt is required */
  /* [n_inputs]: bit i: axis i holds the items of the batch, each dims[i] / batch long */
  TFM_SLOT(const uint8_t *item_axes);
  tfm_generate_options defaults;
} tfm_generation;

typedef struct tfm_library {
  uint32_t abi;                /* TFM_LIBRARY_ABI */
  TFM_SLOT(const char *model); /* the prefix of its functions */
  TFM_SLOT(const char *version); /* of the compiler */
  uint32_t n_programs;         /* one per instruction set, the best first; equal but for their kernels and tiles */
  TFM_SLOT(const tfm_program *const *programs);
  tfm_args_layout args;
  uint8_t layout[16];          /* hash of the layout of the packed weights; a .tfmw file must have the same */
  TFM_SLOT(const void *weights); /* embedded packed weights, 64-byte aligned; NULL: they come from a .tfmw file */
  /* JSON: model, inputs, outputs, sizes, instruction sets, weights, FLOPs; for tools. A module has none in memory */
  TFM_SLOT(const char *description);
  TFM_SLOT(const tfm_generation *generation); /* NULL: the model has no generate block */
  TFM_SLOT(const tfm_decoding *const *decodings); /* [n_programs], with the same weights; NULL: no incremental form */
  /* [n_programs]: the tables of all these, of a tfm_model_programs; NULL: they have them */
  TFM_SLOT(const tfm_packed_tables *packed);
} tfm_library;

/* The functions behind <model>_open and so on; the generated header and tfm.h say what they promise. A context does
 * one such call at a time: a second one, from another thread, is refused with TFM_E_USAGE. */
tfm_status tfm_library_open(const tfm_library *library, const char *path, tfm_model **model, tfm_error *error);
tfm_status tfm_library_open_memory(const tfm_library *library, const void *bytes, uint64_t size, tfm_model **model,
                                   tfm_error *error);
/* The same for a program that was compiled with a header: `layout` is the number of the args struct there. A library
 * with another is refused, since it would read the caller's struct wrongly, or behind its end. */
tfm_status tfm_library_open_as(const tfm_library *library, uint64_t layout, const char *path, tfm_model **model,
                               tfm_error *error);
tfm_status tfm_library_open_memory_as(const tfm_library *library, uint64_t layout, const void *bytes, uint64_t size,
                                      tfm_model **model, tfm_error *error);
tfm_status tfm_library_context_new(tfm_model *model, const tfm_context_options *options, tfm_context **context,
                                   tfm_error *error);
tfm_status tfm_library_forward(tfm_context *context, const void *args, tfm_error *error);
/* Makes room for the sizes of `args`, whose pointers are not read: runs with sizes up to these allocate nothing. */
tfm_status tfm_library_reserve(tfm_context *context, const void *args, tfm_error *error);
/* Bytes of workspace that a context with the default options needs for the sizes of `args`; -1 if one is out of
 * range. */
int64_t tfm_library_workspace_bytes(const tfm_model *model, const void *args);
/* For models with a generate block. `options` NULL: those of the block. lengths[batch]: tokens of each prompt; NULL:
 * all of the decoder input. *generated is the caller's after a success (tfm_generated_free), zeroes after a failure. */
void tfm_library_generate_defaults(const tfm_library *library, tfm_generate_options *options);
tfm_status tfm_library_generate(tfm_context *context, const void *args, const int64_t *lengths,
                                const tfm_generate_options *options, tfm_generated *generated, tfm_error *error);
/* For models with an incremental form: the functions of tfm/decode.h on a decoder that belongs to the context. */
tfm_status tfm_library_begin(tfm_context *context, const void *args, int64_t max_rows, int64_t max_length,
                             tfm_error *error);
tfm_status tfm_library_join(tfm_context *context, int64_t item, int64_t *row, tfm_error *error);
tfm_status tfm_library_leave(tfm_context *context, int64_t row, tfm_error *error);
tfm_status tfm_library_step(tfm_context *context, int64_t n, const tfm_decoder_row *rows, int64_t kept, float *logits,
                            float *logsumexp, tfm_error *error);
tfm_status tfm_library_reorder(tfm_context *context, int64_t n, const int64_t *parents, tfm_error *error);
tfm_status tfm_library_truncate(tfm_context *context, int64_t row, int64_t length, tfm_error *error);
int64_t tfm_library_keeps(const tfm_context *context, int64_t row, int64_t length);
int64_t tfm_library_length(const tfm_context *context, int64_t row);
void tfm_library_end(tfm_context *context);

/* The version of the compiler that made the library; the library's own table. */
const char *tfm_library_version(const tfm_library *library);
const tfm_library *tfm_library_self(const tfm_library *library);

#ifdef __cplusplus
}
#endif
#endif

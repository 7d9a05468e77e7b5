/* A model: the program of a library that this CPU can run, and its weights.
 *
 * A model is constant once it is open, but for the number of its users: whoever opened it, and its contexts. It ends
 * with the last of them, so that a program that closes it before its contexts does no harm. */
#ifndef TFM_RUNTIME_OPEN_H
#define TFM_RUNTIME_OPEN_H

#include <stdatomic.h>

#include "base/error.h"
#include "tfm/abi/library.h"
#include "tfm/abi/weights_file.h"

typedef struct Weights {
  const void *packed;
  void *mapping; /* of a .tfmw file; NULL: the memory is the caller's or the library's */
  size_t mapping_bytes;
} Weights;

struct tfm_model {
  const tfm_library *library;
  const tfm_program *program;
  const tfm_decoding *decoding; /* NULL: the model has no incremental form */
  Weights weights;
  void *handle;           /* of a library that tfm_model_open loaded; else NULL */
  int (*unload)(void *handle);
  _Atomic uint32_t users; /* whoever opened it, and its contexts */
  tfm_model_programs unpacked; /* what `program` and `decoding` point to, if the library's tables are packed */
  uint64_t tables[];
};

/* The first program of the library whose instruction set this CPU (its `features`) can execute; the compiler puts the
 * best first. TFM_E_ENV names the first feature that is missing. */
tfm_status model_choose(const tfm_library *library, uint32_t features, const tfm_program **program, tfm_error *error);

/* A model without weights, once the library and the CPU have been checked. */
tfm_status model_new(const tfm_library *library, tfm_model **model, tfm_error *error);

/* One user more; one less, and the last one frees the model and unloads its library. */
void model_keep(tfm_model *model);
void model_release(tfm_model *model);

// ---- weights ----

/* Maps the file at `path`, whose header, size and layout must be what the library needs. */
tfm_status weights_map(const tfm_library *library, const char *path, Weights *weights, tfm_error *error);
/* The same for the contents of such a file in memory, which must outlive the model and be aligned to 64 bytes. */
tfm_status weights_in_memory(const tfm_library *library, const void *bytes, uint64_t size, Weights *weights,
                             tfm_error *error);
void weights_unmap(Weights *weights);

// ---- the file of a library ----

/* open_path.c: loads the library at `path`; *table is what its only exported function whose name ends with `suffix`
 * returns, NULL if there is none. The caller ends *handle with dlclose. */
tfm_status library_load(const char *path, const char *suffix, void **handle, const void **table, tfm_error *error);

/* open_path.c: what a shared library exports, read from the file without loading it. The only function exported by
 * the library at `path` whose name ends with `suffix`; the caller frees its name. A file that is no whole library for
 * this machine is refused: the loader would crash on one that was cut off. */
tfm_status elf_find_export(const char *path, const char *suffix, char **name, tfm_error *error);

#endif

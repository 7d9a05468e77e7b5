/* Header: the public face of a compiled library: the parts that a library is made from, and its C header.
 *
 * In: a program and what `tfmc compile` was told. Out, in the arena: a header in C99 that C++ accepts and that needs no
 * other file of ours. Refuses nothing. */
#ifndef TFM_AOT_HEADER_H
#define TFM_AOT_HEADER_H

#include "aot/args_struct.h"
#include "aot/packed_weights.h"
#include "base/strbuf.h"
#include "jit/code_cache.h"
#include "tfm/abi/library.h"
#include "tfm/abi/train_tables.h"

// ---- parts ----

typedef struct ModelText ModelText; /* description.h */

typedef struct TrainingParts {           /* what trains; its plans stand in LibraryPlans */
  const tfm_training *table;             /* without programs and weights */
  const void *weights[N_TRAINING_PLANS]; /* packed: constants of the text; NULL: none */
} TrainingParts;

typedef struct LibraryParts {
  const LibraryPlans *plans; /* one per instruction set, the best first; they differ in kernels and tiles only */
  uint32_t n_plans;
  const ArgsNames *names;           /* NULL: aot.c finds them */
  const tfm_generation *generation; /* NULL: the model has no generate block */
  const char *not_incremental;      /* why the plans have no decoding, if they have none */
  const char *ragged;               /* the name of the generated length if it is ragged, else NULL */
  const bool *ragged_sources;       /* by symbol of forward: the other ragged sizes; NULL: none */
  const void *weights;              /* packed, to be embedded; NULL: they come from a file */
  const TrainingParts *training;    /* NULL: the library does not train */
  bool is_command;                  /* a module that WASI's `_start` runs, without functions for others */
  const char *weights_beside;       /* of a command: the file of weights where its caller names none */
  const char *version;              /* of tfmc */
  const CodeCache *cache;           /* NULL: kernels are generated anew, to the same bytes */
  const ModelText *text;            /* what the plans were made from; NULL: `tfmc pack` cannot use the library */
} LibraryParts;

/* What a library can do. Each kind has the functions of those before it. */
typedef enum LibraryKind {
  LIBRARY_ANY,     /* forward */
  LIBRARY_WRITES,  /* generate */
  LIBRARY_DECODES, /* begin, step ...: results for earlier tokens are cached */
  LIBRARY_TRAINS   /* apart from the others: trainer_new ... */
} LibraryKind;

LibraryKind library_kind(const LibraryParts *parts);
/* Whether it has the functions of this kind. */
bool library_has(const LibraryParts *parts, LibraryKind least);

// ---- header ----

/* The number (args_number) of the struct of the objective. Only for libraries that train. */
uint64_t objective_number(Arena *arena, const LibraryParts *parts);

void write_header(StrBuf *out, const LibraryParts *parts);

#endif

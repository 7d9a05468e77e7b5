/* Header: the public face of a compiled library: C names for what the model calls its sizes, inputs and outputs, the
 * parts that a library is made from, and its C header.
 *
 * In: a program and what `tfmc compile` was told. Out, in the arena: names that are distinct, are no keywords of C or
 * C++ and clash with nothing that the header itself uses; a header in C99 that C++ accepts and that needs no other
 * file of ours. Refuses nothing: every model has a name that can be made into C. */
#ifndef TFM_AOT_HEADER_H
#define TFM_AOT_HEADER_H

#include "aot/packed_weights.h"
#include "base/strbuf.h"
#include "tfm/abi/library.h"
#include "tfm/abi/train_tables.h"

// ---- names ----

typedef struct ArgsNames {
  const char *prefix;      /* of every exported function: "translator" */
  const char **symbols;    /* n_symbols members of the args struct, one per run-time size */
  const char **inputs;     /* n_inputs */
  const char **outputs;    /* n_outputs */
  const char **capacities; /* n_outputs: how many elements the caller's output has room for */
  const char **lengths;    /* n_symbols; NULL: the size is not ragged, or it is the length that generation appends to */
} ArgsNames;

/* "SentenceEncoder" gives "sentence_encoder", "GPT2" gives "gpt2". */
const char *model_prefix(Arena *arena, const char *model);
/* `ragged` says for every symbol whether items of a batch have their own length of it; NULL: none is ragged. */
ArgsNames args_names(Arena *arena, const tfm_program *program, const bool *ragged);

// ---- parts ----

typedef struct ModelText ModelText; /* description.h */

typedef struct TrainingParts {           /* what trains; its plans stand in LibraryPlans */
  const tfm_training *table;             /* without programs and weights */
  const void *weights[N_TRAINING_PLANS]; /* packed: constants of the text; NULL: none */
} TrainingParts;

typedef struct LibraryParts {
  const LibraryPlans *plans; /* one per instruction set, the best first; they differ in kernels and tiles only */
  uint32_t n_plans;
  const ArgsNames *names;
  const tfm_generation *generation; /* NULL: the model has no generate block */
  const char *not_incremental;      /* why the plans have no decoding, if they have none */
  const char *ragged;               /* the name of the generated length if it is ragged, else NULL */
  const bool *ragged_sources;       /* by symbol of forward: the other ragged sizes; NULL: none */
  const void *weights;              /* packed, to be embedded; NULL: they come from a file */
  const TrainingParts *training;    /* NULL: the library does not train */
  const char *version;
  const ModelText *text;            /* for `tfmc pack` */
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

/* What a header hands to a library (tfm_args_layout.number): equal exactly for structs with the same members in the
 * same order, of the same types. `names` are those of the program. */
uint64_t args_number(Arena *arena, const tfm_program *program, uint32_t n_inputs, const ArgsNames *names);
/* The same of the struct of the objective. Only for libraries that train. */
uint64_t objective_number(Arena *arena, const LibraryParts *parts);

void write_header(StrBuf *out, const LibraryParts *parts);

#endif

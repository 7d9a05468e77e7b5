/* WeightSource: where the weights of a run come from: a file, random numbers, or the packed weights of a library.
 *
 * In: a request, and the graph as it was elaborated. Out: tensors by name, read when they are asked for. Everything
 * that is missing or does not fit is listed before that. */
#ifndef TFM_ENGINES_WEIGHT_SOURCE_H
#define TFM_ENGINES_WEIGHT_SOURCE_H

#include "graph/eval.h"
#include "weights/pack.h"
#include "weights/weight_set.h"

// ---- random numbers ----

/* They depend on a seed, a name and a position alone, and are the same on every machine. */
typedef struct Random {
  uint64_t state;
} Random;

Random random_new(uint64_t seed, const char *name);
/* In [0, limit); limit > 0. */
uint64_t random_below(Random *random, uint64_t limit);
/* In [-1, 1), a multiple of 2^-23: exact in f32. */
float random_float(Random *random);

// ---- what a model needs ----

typedef struct NodeList {
  VEC(Node *) nodes;
} NodeList;

/* The WEIGHT nodes that some output needs, in the order of the graph, which gets new numbers. */
NodeList needed_weights(Arena *arena, Graph *graph);

typedef struct WeightCheck { /* how a file is compared with a model */
  Arena *arena;
  Diag *diag;
  const char *prefix;      /* of --weights-prefix; "": none */
  bool rejects_nonfinite;
  bool is_import;          /* the caller accounts for tensors that the model lacks, and has no --weights-prefix */
} WeightCheck;

/* Compares a file with what the outputs of the graph need. Missing weights, other shapes and other types are errors;
 * tensors below a module of the model that it does not declare are warnings. Returns how many tensors of the file the
 * model does not use. */
size_t weight_set_check(const WeightCheck *check, Graph *graph, const WeightSet *set);

// ---- where they come from ----

typedef struct WeightRequest {
  WeightCheck check;
  const char *path;   /* of --weights; NULL: none */
  bool is_random;
  uint64_t seed;
  bool may_be_packed; /* a library is run, whose weights may be packed */
} WeightRequest;

typedef struct WeightSource {
  Arena *arena;
  Diag *diag;
  WeightSet *set; /* NULL: random */
  uint64_t seed;
  bool is_packed; /* the weights are those of a compiled library, packed: there are no tensors by name */
  const char *packed_path; /* the .tfmw file; NULL: the one beside the library, or those in it */
  Map needed;              /* name -> what the model needs, a NeededWeight * */
  Arena *loaded;  /* of the tensors that were read */
  Map by_name;    /* name -> Tensor *, in `loaded` */
} WeightSource;

/* Opens the file, compares it with what the model needs and says all that is wrong. NULL after an error; else
 * weight_source_close when done. */
WeightSource *weight_source_open(const WeightRequest *request, Graph *graph);
/* The type of few bits that the file has a weight in; ANY: it has none. */
Stored weight_entry_stored(const WeightEntry *entry);
/* Notes in a graph of the model which weights the file has in fewer bits, but for those that a rule keeps in f32: the
 * plan then keeps them so. Whoever derives other graphs from it does so afterwards. A graph of a library knows
 * already. */
void weight_set_note_types(const WeightSet *set, Graph *graph); /* NULL is ignored: random weights */
/* A WeightLookup; `source` is a WeightSource. */
const Tensor *weight_source_get(void *source, const char *name);
/* What packs the weights: parts of them are read, and whole tensors kept only while something is computed of them. */
WeightReader weight_source_reader(WeightSource *source);
void weight_source_close(WeightSource *source); /* NULL is ignored */

#endif

/* WeightSource: where the weights of a run come from: a file, random numbers, or the packed weights of a library.
 *
 * In: --weights or --random-weights, and the graph as it was elaborated. Out: tensors by name, read when they are asked
 * for. Everything that is missing or does not fit is listed before that (weight_source_check). */
#ifndef TFM_DRIVER_WEIGHT_SOURCE_H
#define TFM_DRIVER_WEIGHT_SOURCE_H

#include "driver/model.h"
#include "graph/eval.h"
#include "weights/weight_set.h"

typedef struct WeightSource {
  Session *session;
  WeightSet *set; /* NULL: random */
  uint64_t seed;
  bool is_packed; /* the weights are those of a compiled library, packed: there are no tensors by name */
  const char *packed_path; /* the .tfmw file; NULL: the one beside the library, or those in it */
  Map shapes;     /* name -> Tensor * without data: what the model needs */
  Arena *loaded;  /* of the tensors that were read */
  Map by_name;    /* name -> Tensor *, in `loaded` */
} WeightSource;

/* Opens the file, compares it with what the model needs and says all that is wrong. NULL after an error; else
 * weight_source_close when done. */
WeightSource *weight_source_open(Session *session, Graph *graph);
/* A WeightLookup; `source` is a WeightSource. */
const Tensor *weight_source_get(void *source, const char *name);
/* Frees the tensors that were read; they can be asked for again. */
void weight_source_release(WeightSource *source);
void weight_source_close(WeightSource *source); /* NULL is ignored */

/* Compares a weight file with the graph: missing, misshaped, wrong type are errors; tensors below a path of the model
 * that it does not declare are warnings. Returns how many tensors of the file the model does not use. */
size_t weight_set_check(Session *session, Graph *graph, const WeightSet *set);

#endif

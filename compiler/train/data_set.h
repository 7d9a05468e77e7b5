/* The items of a training run, as data.h reads them. */
#ifndef TFM_TRAIN_DATA_SET_H
#define TFM_TRAIN_DATA_SET_H

#include "graph/eval.h"
#include "weights/tensor_file.h"

typedef struct DataRequest {
  Arena *arena;
  Diag *diag;
  const Graph *graph; /* of the objective: its inputs first */
  uint32_t n_inputs;
  int32_t batch; /* the size that counts items; -1: there is none */
  const char *const *paths;
  size_t n_paths;
  int64_t window;      /* 0: items have lengths */
  int64_t most_tokens; /* of an item; 0: any number */
  bool skips_long;     /* items that are too long are left out, else they are an error */
} DataRequest;

typedef struct DataInput {
  const Node *node; /* INPUT */
  int32_t symbol;   /* the size of axis 1, which differs from item to item; -1: all items have one shape */
  int64_t numbers;  /* of one place, or of one item that has one shape */
  double padding;
  int64_t limit, ignored; /* ids are in [0, limit), or this number. limit -1: they may be anything */
  bool has_ignored;
  bool may_be_infinite;      /* f32 */
  bool has_padding;          /* the data say what pads it */
  int64_t *starts, *lengths; /* of the items, in places of the tensor of their file */
} DataInput;

typedef struct DataSet {
  DataRequest request;
  VEC(TensorFile *) files;
  VEC(int64_t) firsts; /* the first item of each file */
  VEC(int64_t) begins; /* the same before some were left out */
  DataInput *inputs;
  int64_t n_items;
  int64_t *places; /* of the items: which they were before some were left out */
  int64_t n_skipped;
  uint64_t hash; /* of all that the items hold */
} DataSet;

#endif

/* DataSet: the items that a model is trained on, in safetensors files.
 *
 * In: files, and an objective with its inputs. An input with a run-time size beside the batch is a tensor NAME in which
 * the items lie one behind the other along that axis, and NAME.lengths says how long they are; another is a tensor
 * [items, ...]. With a window, NAME is one long text without lengths, and items are pieces of it. Out: how many items
 * there are, how long each is, and batches of any of them, padded. Everything is checked when the files are opened:
 * types, shapes, lengths and their sums, every id, and what the model requires of sizes. Nothing is kept in memory but
 * the lengths: items are read when a batch is made. */
#ifndef TFM_TRAIN_DATA_H
#define TFM_TRAIN_DATA_H

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

/* NULL after an error. */
DataSet *data_open(const DataRequest *request);
void data_close(DataSet *data); /* NULL is ignored */
/* How long an item is, over all inputs with lengths; 1 if none has. */
int64_t data_tokens(const DataSet *data, int64_t item);
/* The number of an item in its file, for messages. */
int64_t data_place(const DataSet *data, int64_t item, const char **path);
/* The inputs with n items, in `arena`. False after an error. */
bool data_batch(const DataSet *data, Arena *arena, const int64_t *items, int64_t n, EvalInputs *inputs);

#endif

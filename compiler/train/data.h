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

#include "train/data_set.h"

/* NULL after an error. */
DataSet *data_open(const DataRequest *request);
void data_close(DataSet *data); /* NULL is ignored */
/* How long an item is, over all inputs with lengths; 1 if none has. */
int64_t data_tokens(const DataSet *data, int64_t item);
/* The number of an item in its file, for messages. */
int64_t data_place(const DataSet *data, int64_t item, const char **path);
/* The inputs with n items, in `arena`. False after an error. */
bool data_batch(const DataSet *data, Arena *arena, const int64_t *items, int64_t n, EvalInputs *inputs);
/* The same, padded to `least` of each run-time size at least. */
bool data_batch_padded(const DataSet *data, Arena *arena, const int64_t *items, int64_t n, const int64_t *least,
                       EvalInputs *inputs);
/* longest[size] rises to the longest of the items, for each run-time size that `sizes` has a bit for. items NULL: the
 * first n. */
void data_longest(const DataSet *data, const int64_t *items, int64_t n, uint64_t sizes, int64_t *longest);

// ---- data_files.c, for data.c: what the items of a file are, and what they hold ----

/* The items of a safetensors file with a tensor for each input, behind those that there are. */
bool data_add_file(DataSet *data, const char *path);
/* n numbers of the tensor of an input, from `first` on, in the type of the input. */
bool data_read_part(const DataSet *data, const TensorFile *file, const DataInput *input, int64_t first, int64_t n,
                    void *to);

#endif

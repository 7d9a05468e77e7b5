/* WeightSet: the tensors of a model's weights, from one file, safetensors or GGUF, or from several that an index lists.
 *
 * In: a path. Out: every tensor by its name; the set lives in the arena and owns its open files. An index
 * (model.safetensors.index.json) is JSON: {"weight_map": {"tensor": "file", ...}}. It may come from strangers, so the
 * names in it must stay in its own folder or below: absolute paths and `..` are refused, as is a tensor that its file
 * does not have. Symbolic links are followed. Each file is opened once. `LayerNorm.gamma` and `LayerNorm.beta`, as the
 * first BERTs have them, are found as `LayerNorm.weight` and `LayerNorm.bias` too, unless there are such. */
#ifndef TFM_WEIGHTS_WEIGHT_SET_H
#define TFM_WEIGHTS_WEIGHT_SET_H

#include "weights/tensor_file.h"

typedef struct WeightEntry {
  const TensorFile *file;
  const FileTensor *tensor;
  const char *name; /* that models ask for: the tensor's, but for norms of checkpoints of 2018 */
} WeightEntry;

typedef struct WeightSet {
  const char *path; /* as the user gave it */
  VEC(TensorFile *) files;
  VEC(WeightEntry) entries; /* all tensors, in the order of the file or of the index */
  Map by_name;              /* either name -> index in entries + 1, as a pointer */
} WeightSet;

/* The file of a folder of Hugging Face: model.safetensors or, if there is none, its index; another path is itself. */
const char *weight_set_path(Arena *arena, const char *path);
/* A path that ends in .json is an index, a folder is that of a checkpoint. NULL after an error; otherwise the caller
 * must close it. */
WeightSet *weight_set_open(Arena *arena, Diag *diag, const char *path);
void weight_set_close(WeightSet *set); /* NULL is ignored */
/* NULL if there is none. */
const WeightEntry *weight_set_find(const WeightSet *set, const char *name);

#endif

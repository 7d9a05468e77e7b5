/* WeightSet: the tensors of a model's weights, from one file, safetensors or GGUF, or from several that an index or the
 * modules of a folder list.
 *
 * In: a path. Out: every tensor by its name; the set lives in the arena and owns its open files. An index
 * (model.safetensors.index.json) is JSON: {"weight_map": {"tensor": "file", ...}}. It may come from strangers, so the
 * names in it must stay in its own folder or below: absolute paths and `..` are refused, as is a tensor that its file
 * does not have or that two of its files have; one that it leaves out is read. Symbolic links are followed. Each file
 * is opened once. `LayerNorm.gamma` and `LayerNorm.beta`, as the first BERTs have them, are found as `LayerNorm.weight`
 * and `LayerNorm.bias` too, and `after.NAME`, which `tfmc train` writes beside gradients, as NAME, unless there are
 * such. Weights of a folder's modules are found as FOLDER.NAME.
 * Tensors of a GGUF file whose architecture gguf_names.def has are found by the names that they have in PyTorch, too,
 * and then as they are there (gguf_names.h). Tensors in F8_E4M3 and I8 have a scale if there is NAME_scale or
 * NAME_scale_inv, as compressed-tensors, transformers and vLLM write them: a number, one for each row ([n] or [n, 1]),
 * for each group of columns ([n, groups]) or block of 128 by 128. Weights that are packed in few bits (packed_weight.h)
 * are found by the name that they have without it, where the config.json of their folder says how they are packed. */
#ifndef TFM_WEIGHTS_WEIGHT_SET_H
#define TFM_WEIGHTS_WEIGHT_SET_H

#include "weights/packed_weight.h"
#include "weights/tensor_file.h"
#include "weights/weight_folder.h"

/* Factors of a weight in F8_E4M3 or I8, which stand in a tensor beside it: its value is q times the factor, as f32. The
 * factor of element [i][j] is number [i / rows][j / columns] of the tensor. */
typedef struct WeightScale {
  const TensorFile *file;
  const FileTensor *tensor;
  int64_t rows, columns;
} WeightScale;

/* The change of a weight by an adapter, s B A, or its transpose: added when the weight is read. */
typedef struct WeightDelta {
  const float *a, *b; /* [rank, columns], [rows, rank] */
  int64_t rank, rows, columns;
  double scale;
  bool is_turned; /* the weight is [columns, rows] */
  uint32_t number; /* of the adapter in the set, from 1 */
  const TensorFile *file;
  const FileTensor *tensors[2]; /* a and b in it */
  const struct WeightDelta *before; /* of an adapter that was merged earlier; NULL: none */
} WeightDelta;

typedef struct WeightEntry {
  const TensorFile *file;
  const FileTensor *tensor;
  const char *name; /* that models ask for: the tensor's, but for norms of checkpoints of 2018 */
  const WeightScale *scale; /* NULL: it has none */
  const PackedWeight *packed; /* what it is made of; NULL: it stands in the file as it is */
  const WeightDelta *delta; /* of an adapter (adapter.h); NULL: none */
  const char *fault; /* why it is no weight all the same, with the way out; NULL: nothing is wrong with its scale */
  bool is_part;      /* of a quantized weight: a scale, and what else stands beside it */
  bool is_of_adapter; /* an adapter of peft holds it whole, and it stands in the place of the base's */
} WeightEntry;

typedef struct WeightSet {
  const char *path; /* as the user gave it */
  VEC(TensorFile *) files;
  VEC(WeightEntry) entries; /* all tensors, in the order of the file or of the index; behind them, packed weights */
  uint32_t n_adapters;
  PackedCache packed;
  Map by_name;              /* either name -> index in entries + 1, as a pointer */
  Map turned;               /* PyTorch's names of tensors of GGUF whose rows are put back -> WeightEntry */
} WeightSet;

/* A path that ends in .json is an index, a folder is that of a checkpoint, BASE+FOLDER is BASE with an adapter of peft
 * (adapter.h). NULL after an error; otherwise the caller must close it. */
WeightSet *weight_set_open(Arena *arena, Diag *diag, const char *path);
/* The same without adapters, and without weights that are packed. */
WeightSet *weight_set_open_base(Arena *arena, Diag *diag, const char *path);
/* Adds a tensor of a file that the set owns, under another name. */
void weight_set_add(Arena *arena, WeightSet *set, const TensorFile *file, const FileTensor *tensor, const char *name);
void weight_set_close(WeightSet *set); /* NULL is ignored */
/* NULL if there is none. */
const WeightEntry *weight_set_find(const WeightSet *set, const char *name);

/* Whether the entry can be a weight: of a type that converts to f32, alone or with its scale. */
bool weight_entry_is_readable(const WeightEntry *entry);
/* Whether it is a matrix in F8 without a scale: right only where no weight of the file has one. */
bool weight_entry_lacks_scale(const WeightEntry *entry);
/* Elements [first, first + n) of such an entry as f32, with its scale. False after an error of reading. */
bool weight_entry_read_part(const WeightEntry *entry, Diag *diag, int64_t first, int64_t n, float *out);

#endif

/* What tensors of a GGUF file are in PyTorch, by gguf_names.def.
 *
 * In: a file that is open, a tensor of it. Out: its name there and whether its rows must be put back in order. A file
 * of another architecture, or a tensor that is not in the table, has no such name. */
#ifndef TFM_WEIGHTS_GGUF_NAMES_H
#define TFM_WEIGHTS_GGUF_NAMES_H

#include "weights/tensor_file.h"

typedef struct GgufArchitecture {
  const char *name, *model_type, *class_name;
  bool turns_rows;
} GgufArchitecture;

typedef struct GgufName {
  const char *text;
  int64_t turned_heads; /* 0: the rows are in order */
} GgufName;

/* By general.architecture; NULL: there is none in the table. */
const GgufArchitecture *gguf_architecture(const TensorFile *file);
/* The names of the table, "llama, qwen2, qwen3". */
const char *gguf_architectures(Arena *arena);
/* False: it has none. */
bool gguf_name_in_pytorch(Arena *arena, const TensorFile *file, const FileTensor *tensor, GgufName *name);

#endif

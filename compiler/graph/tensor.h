/* Tensor: elements of one type in a shape, row after row, as models read and write them. A tensor of an arena lives as
 * long as the arena; memory that lacks is reported by the arena. Refuses nothing. */
#ifndef TFM_GRAPH_TENSOR_H
#define TFM_GRAPH_TENSOR_H

#include "base/strbuf.h"
#include "graph/ops.h"

enum { MAX_RANK = 8 };

typedef struct Tensor {
  DType dtype;
  uint32_t rank;
  int64_t dims[MAX_RANK];
  void *data; /* row-major; f32, i32 or uint8_t (0 or 1) */
} Tensor;

int64_t tensor_elements(const Tensor *tensor);
Tensor *tensor_new(Arena *arena, DType dtype, uint32_t rank, const int64_t *dims);
/* The same for a tensor that the user knows: `kind` "input", `name` "x". A message names it if there is no memory. */
Tensor *tensor_new_named(Arena *arena, const char *kind, const char *name, DType dtype, uint32_t rank,
                         const int64_t *dims);

/* "[2, 3]" */
void tensor_print_dims(StrBuf *out, uint32_t rank, const int64_t *dims);

// ---- parts along an axis ----

/* A tensor of `to_n` parts along an axis, each as long as one of the `from_n` parts of `like`, without values. */
Tensor parts_tensor(Arena *arena, const Tensor *like, int64_t from_n, int64_t to_n, uint32_t axis);
/* One of n equal parts of a tensor along an axis. */
typedef struct TensorPart {
  const Tensor *tensor; /* its numbers may be written */
  int64_t part, n;
} TensorPart;
void parts_copy(TensorPart to, TensorPart from, uint32_t axis);

#endif

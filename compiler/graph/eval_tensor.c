/* In: shapes. Out: memory for tensors, the walk over their indexes, strides of broadcast operands. */
#include <string.h>

#include "graph/eval_run.h"

int64_t tensor_elements(const Tensor *tensor) {
  int64_t n = 1;
  for (uint32_t i = 0; i < tensor->rank; i++) n *= tensor->dims[i];
  return n;
}

Tensor *tensor_new(Arena *arena, DType dtype, uint32_t rank, const int64_t *dims) {
  Tensor *tensor = ARENA_NEW(arena, Tensor);
  tensor->dtype = dtype;
  tensor->rank = rank;
  if (rank) memcpy(tensor->dims, dims, rank * sizeof *dims);
  tensor->data = arena_array(arena, (size_t)tensor_elements(tensor), dtype_bytes[dtype]);
  return tensor;
}

Grid grid_of(uint32_t rank, const int64_t *dims) {
  Grid grid = {.rank = rank, .points = 1};
  for (uint32_t i = 0; i < rank; i++) {
    grid.dims[i] = dims[i];
    grid.points *= dims[i];
  }
  return grid;
}

void grid_next(Grid *grid) {
  for (uint32_t i = grid->rank; i > 0; i--) {
    if (++grid->index[i - 1] < grid->dims[i - 1]) return;
    grid->index[i - 1] = 0;
  }
}

int64_t grid_offset(const Grid *grid, const int64_t *strides) {
  int64_t offset = 0;
  for (uint32_t i = 0; i < grid->rank; i++) offset += grid->index[i] * strides[i];
  return offset;
}

void broadcast_strides(uint32_t own_rank, const int64_t *dims, int64_t inner, uint32_t rank, int64_t *strides) {
  memset(strides, 0, MAX_RANK * sizeof *strides);
  for (uint32_t i = 1; i <= own_rank; i++) {
    strides[rank - i] = dims[own_rank - i] == 1 ? 0 : inner;
    inner *= dims[own_rank - i];
  }
}

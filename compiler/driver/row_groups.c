#include "driver/row_groups.h"

#include <string.h>

bool row_groups_run(Arena *arena, const tfm_step_rows *call, const RowGrouping *grouping) {
  bool *is_taken = ARENA_ARRAY(arena, bool, call->n);
  RowGroup group = {.call = call, .numbers = ARENA_ARRAY(arena, int64_t, call->n)};
  for (int64_t first = 0; first < call->n; first++) {
    if (is_taken[first]) continue;
    group.n = group.longest = 0;
    for (int64_t i = first; i < call->n; i++) {
      if (is_taken[i] || (i > first && !grouping->fits(grouping->context, call, first, i))) continue;
      is_taken[i] = true;
      group.numbers[group.n++] = i;
      if (call->lengths[i] > group.longest) group.longest = call->lengths[i];
    }
    if (!grouping->run(grouping->context, &group)) return false;
  }
  return true;
}

Tensor parts_tensor(Arena *arena, const Tensor *like, int64_t from_n, int64_t to_n, uint32_t axis) {
  int64_t dims[MAX_RANK];
  memcpy(dims, like->dims, sizeof dims);
  dims[axis] = from_n ? dims[axis] / from_n * to_n : 0;
  return *tensor_new(arena, like->dtype, like->rank, dims);
}

void parts_copy(Tensor *to, int64_t to_part, int64_t to_n, const Tensor *from, int64_t from_part, int64_t from_n,
                uint32_t axis) {
  int64_t outer = 1, inner = dtype_bytes[from->dtype];
  for (uint32_t i = 0; i < axis; i++) outer *= from->dims[i];
  for (uint32_t i = axis; i < from->rank; i++) inner *= from->dims[i];
  const size_t bytes = (size_t)(inner / from_n);
  for (int64_t i = 0; i < outer && bytes; i++)
    memcpy((char *)to->data + (size_t)(i * to_n + to_part) * bytes,
           (const char *)from->data + (size_t)(i * from_n + from_part) * bytes, bytes);
}

Tensor parts_gather(Arena *arena, const Tensor *from, int64_t items, uint32_t axis, const RowGroup *group) {
  Tensor to = parts_tensor(arena, from, items, group->n, axis);
  for (int64_t i = 0; i < group->n; i++)
    parts_copy(&to, i, group->n, from, group->call->items[group->numbers[i]], items, axis);
  return to;
}

Tensor group_tokens(Arena *arena, const RowGroup *group, int64_t past) {
  const int64_t width = group->longest - past;
  Tensor tensor = *tensor_new(arena, DTYPE_I32, 2, (int64_t[]){group->n, width});
  for (int64_t i = 0; i < group->n; i++)
    memcpy((int32_t *)tensor.data + i * width, group->call->tokens[group->numbers[i]] + past,
           (size_t)(group->call->lengths[group->numbers[i]] - past) * sizeof(int32_t));
  return tensor;
}

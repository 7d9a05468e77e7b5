/* In: a type and a shape. Out: a tensor of zeros in an arena, which says what for where there is no memory; copies of
 * parts of tensors. See tensor.h. Refuses nothing. */
#include "graph/tensor.h"

#include <string.h>

int64_t tensor_elements(const Tensor *tensor) {
  int64_t n = 1;
  for (uint32_t i = 0; i < tensor->rank; i++) n *= tensor->dims[i];
  return n;
}

/* Zeros, as arena memory is. Large ones begin a line of the cache: vectors that cross lines take twice the time. */
static void *tensor_memory(Arena *arena, size_t elements, size_t bytes) {
  enum { LARGE = 1024, LINE = 64 };
  if (elements < LARGE) return arena_array(arena, elements, bytes);
  char *memory = arena_array(arena, elements + LINE / bytes, bytes);
  return memory + (LINE - (uintptr_t)memory % LINE) % LINE;
}

Tensor *tensor_new(Arena *arena, DType dtype, uint32_t rank, const int64_t *dims) {
  Tensor *tensor = ARENA_NEW(arena, Tensor);
  tensor->dtype = dtype;
  tensor->rank = rank;
  if (rank) memcpy(tensor->dims, dims, rank * sizeof *dims);
  tensor->data = tensor_memory(arena, (size_t)tensor_elements(tensor), dtype_bytes[dtype]);
  return tensor;
}

void tensor_print_dims(StrBuf *out, uint32_t rank, const int64_t *dims) {
  strbuf_add_char(out, '[');
  for (uint32_t i = 0; i < rank; i++) strbuf_printf(out, "%s%lld", i ? ", " : "", (long long)dims[i]);
  strbuf_add_char(out, ']');
}

Tensor *tensor_new_named(Arena *arena, const char *kind, const char *name, DType dtype, uint32_t rank,
                         const int64_t *dims) {
  StrBuf text = strbuf_new(arena);
  strbuf_printf(&text, "for %s \"%s\", %s", kind, name, dtype_names[dtype]);
  tensor_print_dims(&text, rank, dims);
  const char *before = arena_set_purpose(arena, text.text);
  Tensor *tensor = tensor_new(arena, dtype, rank, dims);
  arena_set_purpose(arena, before);
  return tensor;
}

// ---- parts along an axis ----

/* An axis can hold several positions for each part (batch * heads, say), so its length is divided and multiplied, not
 * replaced. No parts: an empty tensor. */
Tensor parts_tensor(Arena *arena, const Tensor *like, int64_t from_n, int64_t to_n, uint32_t axis) {
  int64_t dims[MAX_RANK];
  memcpy(dims, like->dims, sizeof dims);
  dims[axis] = from_n ? dims[axis] / from_n * to_n : 0;
  return *tensor_new(arena, like->dtype, like->rank, dims);
}

/* `outer` blocks lie before the axis; each holds all parts one after another, so a part is one piece of memory per
 * block. */
static char *part_at(TensorPart of, int64_t outer, size_t bytes) {
  return (char *)of.tensor->data + (size_t)(outer * of.n + of.part) * bytes;
}

void parts_copy(TensorPart to, TensorPart from, uint32_t axis) {
  const Tensor *x = from.tensor;
  int64_t outer = 1, inner = dtype_bytes[x->dtype];
  for (uint32_t i = 0; i < axis; i++) outer *= x->dims[i];
  for (uint32_t i = axis; i < x->rank; i++) inner *= x->dims[i];
  const size_t bytes = (size_t)(inner / from.n);
  for (int64_t i = 0; i < outer && bytes; i++) memcpy(part_at(to, i, bytes), part_at(from, i, bytes), bytes);
}

/* In: a type and a shape. Out: a tensor of zeros in an arena. See tensor.h. */
#include "graph/tensor.h"

#include <string.h>

#include "base/strbuf.h"

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

Tensor *tensor_new_named(Arena *arena, const char *kind, const char *name, DType dtype, uint32_t rank,
                         const int64_t *dims) {
  StrBuf text = strbuf_new(arena);
  strbuf_printf(&text, "for %s \"%s\", %s[", kind, name, dtype_names[dtype]);
  for (uint32_t i = 0; i < rank; i++) strbuf_printf(&text, "%s%lld", i ? ", " : "", (long long)dims[i]);
  strbuf_add_char(&text, ']');
  const char *before = arena_set_purpose(arena, text.text);
  Tensor *tensor = tensor_new(arena, dtype, rank, dims);
  arena_set_purpose(arena, before);
  return tensor;
}

/* Fuzz target: any bytes as a safetensors file, read beside a slow judge (oracle_safetensors).
 *
 * Both must accept the same files. What is accepted is read in full, in every type it converts to. */
#include "fuzz.h"
#include "oracle_safetensors.h"
#include "weights/safetensors.h"
#include "weights/weight_set.h"

/* The format asks tensors to fill the data without gaps, so their bytes must add up to it. */
static void read_all(Arena *arena, Diag *diag, const TensorFile *file) {
  int64_t bytes = 0;
  for (size_t i = 0; i < file->tensors.n; i++) {
    const FileTensor *tensor = file->tensors.items[i];
    bytes += tensor->end - tensor->begin;
    for (DType dtype = 0; dtype < N_DTYPES; dtype++)
      if (can_convert(tensor->dtype, dtype))
        tensor_file_read(file, diag, tensor, dtype, arena_array(arena, (size_t)tensor->elements, dtype_bytes[dtype]));
  }
  if (bytes != file->data_size) abort();
}

/* As weights, with scales where they have some. */
static void read_weights(Arena *arena, Diag *diag, const char *path) {
  WeightSet *set = weight_set_open(arena, diag, path);
  for (size_t i = 0; set && i < set->entries.n; i++) {
    const WeightEntry *entry = &set->entries.items[i];
    if (!weight_entry_is_readable(entry)) continue;
    const int64_t n = entry->tensor->elements, first = n / 3;
    float *values = ARENA_ARRAY(arena, float, (size_t)n);
    if (!weight_entry_read_part(entry, diag, 0, n, values) ||
        !weight_entry_read_part(entry, diag, first, n - first, values))
      abort();
  }
  weight_set_close(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const FuzzFile bytes = fuzz_file(data, size);
  Arena *arena = arena_create();
  Diag diag = diag_new(arena);
  TensorFile *file = safetensors_open(arena, &diag, bytes.path);
  fuzz_compare(oracle_safetensors(data, size), file != NULL, &diag);
  if (file) read_all(arena, &diag, file);
  if (file) read_weights(arena, &diag, bytes.path);
  tensor_file_close(file);
  arena_destroy(arena);
  close(bytes.fd);
  return 0;
}

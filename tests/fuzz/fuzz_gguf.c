/* Fuzz target: any bytes as a GGUF file, read beside a slow judge (oracle_gguf).
 *
 * Both must accept the same files. What is accepted is read in full, and from the midst of a block on. */
#include "fuzz.h"
#include "oracle_gguf.h"
#include "weights/gguf.h"

static void read_all(Arena *arena, Diag *diag, const TensorFile *file) {
  for (size_t i = 0; i < file->tensors.n; i++) {
    const FileTensor *tensor = file->tensors.items[i];
    for (DType dtype = 0; dtype < N_DTYPES; dtype++) {
      if (!can_convert(tensor->dtype, dtype)) continue;
      void *values = arena_array(arena, (size_t)tensor->elements, dtype_bytes[dtype]);
      tensor_file_read(file, diag, tensor, dtype, values);
      const int64_t first = tensor->elements / 3;
      tensor_file_read_part(file, diag, (FileTensorPart){tensor, first, tensor->elements - first}, dtype, values);
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > 32000) return 0; /* more than the judge has room for */
  const FuzzFile bytes = fuzz_file(data, size);
  Arena *arena = arena_create();
  Diag diag = diag_new(arena);
  TensorFile *file = gguf_open(arena, &diag, bytes.path);
  fuzz_compare(oracle_gguf(data, size), file != NULL, &diag);
  if (file) read_all(arena, &diag, file);
  tensor_file_close(file);
  arena_destroy(arena);
  close(bytes.fd);
  return 0;
}

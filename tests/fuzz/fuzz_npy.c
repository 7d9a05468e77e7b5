/* Fuzz target: any bytes as an npy file, read beside a slow judge (oracle_npy).
 *
 * Both must accept the same files. What is accepted is read in full, so that the sanitizers see every access. */
#include "fuzz.h"
#include "oracle_npy.h"
#include "weights/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const FuzzFile file = fuzz_file(data, size);
  Arena *arena = arena_create();
  Diag diag = diag_new(arena);
  NpyFile npy;
  const bool opened = npy_open(&npy, &diag, file.path);
  fuzz_compare(oracle_npy(data, size), opened, &diag);
  for (DType dtype = 0; opened && dtype < N_DTYPES; dtype++)
    if (can_convert(npy.dtype, dtype))
      npy_read(&npy, &diag, dtype, arena_array(arena, (size_t)npy.elements, dtype_bytes[dtype]));
  if (opened) npy_close(&npy);
  arena_destroy(arena);
  close(file.fd);
  return 0;
}

/* The reader of npy files against a slow judge: both accept the same files. What is accepted is read. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "oracle_npy.h"
#include "weights/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[64];
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  Arena *arena = arena_create();
  Diag diag = diag_new(arena);
  NpyFile npy;
  bool opened = npy_open(&npy, &diag, path), wanted = oracle_npy(data, size);
  if (opened != wanted || opened == (diag.n_errors > 0)) {
    fprintf(stderr, "the judge says %d, the reader %d: %s\n", wanted, opened,
            diag.messages.n ? diag.messages.items[0].text : "");
    abort();
  }
  for (DType dtype = 0; opened && dtype < N_DTYPES; dtype++)
    if (can_convert(npy.dtype, dtype)) npy_read(&npy, &diag, dtype, arena_array(arena, (size_t)npy.elements, dtype_bytes[dtype]));
  if (opened) npy_close(&npy);
  arena_destroy(arena);
  close(fd);
  return 0;
}

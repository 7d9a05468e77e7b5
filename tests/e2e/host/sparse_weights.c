/* usage: sparse_weights LIBRARY FUNCTION FILE OFFSET N: writes a .tfmw file for the library (FUNCTION: its <model>_program)
 * whose weights are zero but for the floats 0, 1, ... N-1 at OFFSET. The zeros take no room on most disks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tfm/abi/library.h"
#include "tfm/abi/weights_file.h"

static void write_at(int fd, const void *bytes, size_t size, off_t at) {
  if (pwrite(fd, bytes, size, at) == (ssize_t)size) return;
  perror("write");
  exit(1);
}

int main(int argc, char **argv) {
  static char page[TFM_WEIGHTS_HEADER_BYTES];
  const tfm_library *(*program)(void);
  void *handle = argc == 6 ? dlopen(argv[1], RTLD_NOW) : NULL, *symbol = handle ? dlsym(handle, argv[2]) : NULL;
  if (!symbol) return 2;
  memcpy(&program, &symbol, sizeof program);
  const tfm_library *library = program();
  tfm_weights_header header = {.magic = TFM_WEIGHTS_MAGIC, .byte_order = TFM_WEIGHTS_BYTE_ORDER, .version = TFM_WEIGHTS_VERSION};
  header.bytes = library->programs[0]->weights_bytes;
  memcpy(header.layout, library->layout, sizeof header.layout);
  strncpy(header.model, library->model, sizeof header.model - 1);
  memcpy(page, &header, sizeof header);
  XXH128_canonical_t hash;
  XXH128_canonicalFromHash(&hash, XXH3_128bits(page, sizeof page));
  memcpy(page + offsetof(tfm_weights_header, header), hash.digest, sizeof header.header);
  int fd = open(argv[3], O_RDWR | O_CREAT | O_EXCL, 0600), n = atoi(argv[5]);
  if (fd < 0 || ftruncate(fd, (off_t)(sizeof page + header.bytes))) {
    perror("truncate");
    return 1;
  }
  write_at(fd, page, sizeof page, 0);
  for (int i = 0; i < n; i++) {
    float value = (float)i;
    write_at(fd, &value, sizeof value, (off_t)sizeof page + atoll(argv[4]) + i * (off_t)sizeof value);
  }
  return close(fd);
}

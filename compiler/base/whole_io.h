/* Reading and writing all of so many bytes, however many calls it takes.
 *
 * In: a descriptor, the place of the bytes. Out: whether all of them went through; errno tells why not. */
#ifndef TFM_BASE_WHOLE_IO_H
#define TFM_BASE_WHOLE_IO_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

static inline bool write_all(int file, const char *from, size_t size) {
  while (size) {
    ssize_t n = write(file, from, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    from += n;
    size -= (size_t)n;
  }
  return true;
}

static inline bool read_all(int file, char *to, size_t size) {
  while (size) {
    ssize_t n = read(file, to, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    size -= (size_t)n;
  }
  return true;
}

#endif

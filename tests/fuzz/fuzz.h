/* What fuzz targets share: the function that libFuzzer calls, bytes as a file, and ways to say what went wrong. A
 * finding ends the process by abort(), which libFuzzer records with the input. */
#ifndef TFM_TESTS_FUZZ_H
#define TFM_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "diag/diag.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A file in memory that readers open by path; the target ends it with close(file.fd). */
typedef struct FuzzFile { /* in memory; ends with close(file.fd) */
  int fd;
  char path[64];
} FuzzFile;

static inline FuzzFile fuzz_file(const uint8_t *bytes, size_t size) {
  FuzzFile file = {.fd = memfd_create("fuzz", MFD_CLOEXEC)};
  if (file.fd < 0 || write(file.fd, bytes, size) != (ssize_t)size) abort();
  snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", file.fd);
  return file;
}

/* Two texts that should be the same, or belong together. */
static inline void fuzz_fail(const char *what, const char *text, const char *again) {
  fprintf(stderr, "%s\n---- first ----\n%s\n---- second ----\n%s\n", what, text, again);
  abort();
}

/* Both must accept a file or refuse it, the reader with one message. */
static inline void fuzz_compare(bool judge, bool reader, const Diag *diag) {
  if (reader == judge && diag->n_errors == (reader ? 0 : 1)) return;
  fprintf(stderr, "the judge says %d, the reader %d, with %d messages: %s\n", judge, reader, diag->n_errors,
          diag->messages.n ? diag->messages.items[0].text : "");
  abort();
}

#endif

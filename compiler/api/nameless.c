#define _GNU_SOURCE /* memfd_create, seals */
#include "api/nameless.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/fault.h"

int nameless_create(tfm_error *error) {
  int low = memfd_create("tfm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  int file = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);
  if (file < 0) fault_of_system(error, TFM_E_ENV, errno, "no file can be made in memory");
  if (low >= 0) close(low);
  return file;
}

bool nameless_write(int file, const void *bytes, size_t size, tfm_error *error) {
  const char *from = bytes;
  while (size) {
    ssize_t n = write(file, from, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      fault_of_system(error, TFM_E_NOMEM, errno, "a file in memory cannot be written");
      return false;
    }
    from += n;
    size -= (size_t)n;
  }
  return true;
}

tfm_status nameless_map(int file, Mapping *mapping, tfm_error *error) {
  *mapping = (Mapping){0};
  struct stat status;
  if (fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) || fstat(file, &status))
    return fault_of_system(error, TFM_E_ENV, errno, "what the compiler made cannot be read");
  if (status.st_size <= 0) return TFM_OK;
  void *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (data == MAP_FAILED) return fault_of_system(error, TFM_E_NOMEM, errno, "what the compiler made cannot be mapped");
  *mapping = (Mapping){data, (size_t)status.st_size};
  return TFM_OK;
}

void mapping_free(Mapping *mapping) {
  if (mapping->data) munmap((void *)(uintptr_t)mapping->data, mapping->size);
  *mapping = (Mapping){0};
}

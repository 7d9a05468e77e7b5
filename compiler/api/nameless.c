#define _GNU_SOURCE /* memfd_create, seals */
#include "api/nameless.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/fault.h"

int nameless_create(tfm_error *error) {
  int low = memfd_create("tfm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  int file = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);
  if (file < 0) fault_of_system(error, TFM_E_ENV, errno, "no file can be made in memory");
  if (low >= 0) close(low);
  return file;
}

/* False after a fault; errno tells. */
static bool write_all(int file, const char *from, size_t size) {
  while (size) {
    ssize_t n = write(file, from, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    from += n;
    size -= (size_t)n;
  }
  return true;
}

/* A limit on the size of files is an error of the write; the signal that comes with it would end the host. */
tfm_status nameless_write(int file, const void *bytes, size_t size, tfm_error *error) {
  sigset_t too_large, before;
  sigemptyset(&too_large);
  sigaddset(&too_large, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &too_large, &before);
  bool ok = write_all(file, bytes, size);
  int number = errno;
  if (!ok && number == EFBIG) sigtimedwait(&too_large, NULL, &(struct timespec){0});
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (ok) return TFM_OK;
  return fault_of_system(error, number == EFBIG ? TFM_E_ENV : TFM_E_NOMEM, number, "a file in memory cannot be written");
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

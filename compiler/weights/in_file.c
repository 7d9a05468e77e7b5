#include "weights/in_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

bool in_file_open(InFile *file, Diag *diag, const char *path, bool follow_link) {
  *file = (InFile){.fd = -1, .path = path};
  /* O_NONBLOCK: opening a pipe without a writer must not wait; it means nothing for a regular file. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (follow_link ? 0 : O_NOFOLLOW));
  if (fd < 0) {
    bool is_link = errno == ELOOP && !follow_link;
    diag_error_at(diag, path, DIAG_FILE, "cannot open the file: %s",
                  is_link ? "it is a symbolic link, which is not followed here" : strerror(errno));
    return false;
  }
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    diag_error_at(diag, path, DIAG_FILE, "cannot read the file: it is %s, not a regular file", kind_of(status.st_mode));
    close(fd);
    return false;
  }
  file->fd = fd;
  file->size = status.st_size;
  return true;
}

bool in_file_read(const InFile *file, Diag *diag, int64_t offset, void *bytes, size_t size) {
  char *to = bytes;
  while (size) {
    ssize_t n = pread(file->fd, to, size, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      diag_error_at(diag, file->path, DIAG_FILE, "cannot read the file: %s",
                    n < 0 ? strerror(errno) : "it became shorter while it was read");
      return false;
    }
    to += n;
    offset += n;
    size -= (size_t)n;
  }
  return true;
}

void in_file_close(InFile *file) {
  if (file->fd >= 0) close(file->fd);
  file->fd = -1;
}

bool is_symbolic_link(const char *path) {
  struct stat status;
  return lstat(path, &status) == 0 && S_ISLNK(status.st_mode);
}

bool same_file(const char *a, const char *b) {
  struct stat status_a, status_b;
  return stat(a, &status_a) == 0 && stat(b, &status_b) == 0 && status_a.st_dev == status_b.st_dev &&
         status_a.st_ino == status_b.st_ino;
}

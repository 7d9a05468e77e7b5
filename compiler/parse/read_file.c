#define _XOPEN_SOURCE 700 /* realpath */

#include "parse/read_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *text_of_error(Arena *arena, int error) {
  char text[256];
  return strerror_r(error, text, sizeof text) == 0 ? arena_strdup(arena, text) : "unknown error";
}

static FileText fault_of(Arena *arena, int error) { return (FileText){.fault = text_of_error(arena, error)}; }

/* Reads to the end or for `size` bytes; -1 after a fault. */
static ssize_t read_all(int file, char *bytes, size_t size) {
  size_t n = 0;
  while (n < size) {
    ssize_t got = read(file, bytes + n, size - n);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    n += (size_t)got;
  }
  return (ssize_t)n;
}

/* Takes over the open file; it is closed afterwards. */
static FileText read_open_file(Arena *arena, int file) {
  FileText result = {0};
  struct stat status;
  if (fstat(file, &status) != 0)
    result = fault_of(arena, errno);
  else if (S_ISDIR(status.st_mode))
    result = fault_of(arena, EISDIR);
  else if (!S_ISREG(status.st_mode))
    result.fault = "Not a regular file";
  else if (status.st_size > PARSE_MAX_SIZE) {
    result.is_too_long = true;
    result.fault = arena_printf(arena, "%lld bytes, a file may have at most 16 MiB", (long long)status.st_size);
  } else {
    char *bytes = arena_alloc(arena, (size_t)status.st_size + 1);
    ssize_t size = read_all(file, bytes, (size_t)status.st_size);
    if (size < 0)
      result = fault_of(arena, errno);
    else
      result = (FileText){.text = bytes, .size = (uint32_t)size};
  }
  close(file);
  return result;
}

/* O_NONBLOCK: opening a FIFO must not wait for its other end. */
enum { OPEN_FLAGS = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK };

FileText read_main_file(Arena *arena, const char *path) {
  int file = open(path, OPEN_FLAGS);
  return file < 0 ? fault_of(arena, errno) : read_open_file(arena, file);
}

/* Walks down folder by folder without following links, so that nobody can put one in after the path was checked. */
FileText read_file_below(Arena *arena, const char *root, const char *resolved) {
  const char *rest = path_below(root, resolved);
  if (!rest) return fault_of(arena, EACCES);
  int folder = open(root, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  while (folder >= 0) {
    size_t length = strcspn(rest, "/");
    const char *name = arena_strndup(arena, rest, length);
    bool is_last = rest[length] == '\0';
    int next =
        openat(folder, name, is_last ? OPEN_FLAGS | O_NOFOLLOW : O_RDONLY | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW);
    int error = errno;
    close(folder);
    if (next < 0) return fault_of(arena, error);
    if (is_last) return read_open_file(arena, next);
    folder = next;
    rest += length + 1;
  }
  return fault_of(arena, errno);
}

const char *resolve_path(Arena *arena, const char *path, const char **fault) {
  char *real = realpath(path, NULL);
  if (!real) {
    *fault = text_of_error(arena, errno);
    return NULL;
  }
  const char *copy = arena_strdup(arena, real);
  free(real);
  return copy;
}

const char *path_below(const char *root, const char *resolved) {
  size_t length = strlen(root);
  while (length > 0 && root[length - 1] == '/') length--; /* the root of the file system */
  return strncmp(root, resolved, length) == 0 && resolved[length] == '/' ? resolved + length + 1 : NULL;
}

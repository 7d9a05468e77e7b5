#define _GNU_SOURCE /* O_TMPFILE */
/* In: paths. Out: files that are read with pread, or that appear complete or not at all. See files.h. */
#include "weights/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- reading ----

static const char *kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

/* The kind of the file is asked of the open descriptor and not of the path, which could name another file by then. */
bool in_file_open(InFile *file, Diag *diag, const char *path) {
  *file = (InFile){.fd = -1, .path = path};
  /* O_NONBLOCK: opening a pipe without a writer must not wait; it means nothing for a regular file. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    diag_error_at(diag, path, DIAG_FILE, "cannot open the file: %s", strerror(errno));
    return false;
  }
  struct stat status = {0};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    diag_error_at(diag, path, DIAG_FILE, "cannot read the file: it is %s, not a regular file", kind_of(status.st_mode));
    close(fd);
    return false;
  }
  file->fd = fd;
  file->size = status.st_size;
  return true;
}

/* pread leaves no position behind, so several readers may share the descriptor. A read may be interrupted or give less
 * than was asked for; the loop goes on. */
bool in_file_read(const InFile *file, Diag *diag, int64_t offset, void *bytes, size_t size) {
  char *to = bytes;
  while (size) {
    ssize_t n = pread(file->fd, to, size, (off_t)(file->from + offset));
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

char *in_file_text(Diag *diag, const char *path, int64_t most, DiagCode code, size_t *size) {
  InFile file;
  if (!in_file_open(&file, diag, path)) return NULL;
  char *text = NULL;
  *size = (size_t)file.size;
  if (file.size > most)
    diag_error_at(diag, path, code, "the file has %lld bytes; at most %lld are read", (long long)file.size,
                  (long long)most);
  else if (!in_file_read(&file, diag, 0, text = ARENA_ARRAY(diag->arena, char, *size + 1), *size))
    text = NULL;
  in_file_close(&file);
  return text;
}

InFile in_file_part(const InFile *file, int64_t from, int64_t size) {
  InFile part = *file;
  part.from += from;
  part.size = size;
  return part;
}

void in_file_close(InFile *file) {
  if (file->fd >= 0) close(file->fd);
  file->fd = -1;
}

/* Compares device and inode: two paths, or two links, may lead to one file. */
bool same_file(const char *a, const char *b) {
  struct stat status_a, status_b;
  return stat(a, &status_a) == 0 && stat(b, &status_b) == 0 && status_a.st_dev == status_b.st_dev &&
         status_a.st_ino == status_b.st_ino;
}

// ---- the target of a file that is written ----

static bool write_failed(OutFile *file, const char *what) {
  if (!file->failed) diag_error_at(file->diag, file->path, DIAG_FILE, "cannot %s: %s", what, strerror(errno));
  file->failed = true;
  return false;
}

/* Returns the file that `path` leads to, whether it exists or not, or NULL with errno set. Replacing a symbolic link
 * by a file would surprise a user who keeps the file elsewhere, so the link is followed. */
static const char *target_of(Arena *arena, const char *path) {
  if (strlen(path) >= PATH_MAX) {
    errno = ENAMETOOLONG;
    return NULL;
  }
  char *real = realpath(path, NULL);
  if (!real) return errno == ENOENT ? path : NULL; /* a link that leads nowhere is itself replaced */
  const char *copy = arena_strdup(arena, real);
  free(real);
  return copy;
}

static const char *folder_of(Arena *arena, const char *path) {
  const char *slash = strrchr(path, '/');
  if (!slash) return ".";
  return slash == path ? "/" : arena_strndup(arena, path, (size_t)(slash - path));
}

/* Whether what is written is to be thrown away. A device cannot be replaced by a file that is complete. */
static bool is_null_device(const char *path) { return strcmp(path, "/dev/null") == 0; }

/* Checks what open and rename would refuse later, after the work is done: a folder, a device, a name that is too
 * long. */
static bool find_target(OutFile *file, Diag *diag, const char *path) {
  *file = (OutFile){.diag = diag, .path = path, .fd = -1};
  file->target = *path ? target_of(diag->arena, path) : NULL;
  if (!*path) errno = ENOENT;
  if (!file->target) return write_failed(file, "write the file");
  file->folder = folder_of(diag->arena, file->target);
  const char *slash = strrchr(file->target, '/');
  const char *name = slash ? slash + 1 : file->target;
  struct stat status;
  if (is_null_device(file->target)) return true;
  if (!*name) errno = EISDIR;
  if (strlen(name) > NAME_MAX) errno = ENAMETOOLONG;
  if (!*name || strlen(name) > NAME_MAX) return write_failed(file, "write the file");
  if (stat(file->target, &status) == 0 && !S_ISREG(status.st_mode)) {
    errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    return write_failed(file, "write the file");
  }
  return true;
}

// ---- the nameless file ----

/* A hidden name that the process takes only for the moment between naming the file and renaming it. */
static const char *temporary_name(const OutFile *file, unsigned attempt) {
  return arena_printf(file->diag->arena, "%s/.tfmc-%ld-%u.tmp", file->folder, (long)getpid(), attempt);
}

/* O_TMPFILE gives a file that vanishes with the process. Some file systems lack it and say so in one of four ways;
 * there a hidden name is used, with O_EXCL so that nothing which exists is written to. Both are in the target's
 * folder, because rename does not cross file systems. */
static bool open_temporary(OutFile *file) {
  file->fd = open(file->folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (file->fd >= 0) return true;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT) return false;
  for (unsigned attempt = 0; attempt < 100; attempt++) {
    file->temporary = temporary_name(file, attempt);
    file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file->fd >= 0) return true;
    if (errno != EEXIST) break;
  }
  file->temporary = NULL;
  return false;
}

bool out_file_open(OutFile *file, Diag *diag, const char *path) {
  if (!find_target(file, diag, path)) return false;
  if (is_null_device(file->target)) file->fd = open(file->target, O_WRONLY | O_CLOEXEC);
  if (file->fd >= 0) return true;
  return open_temporary(file) || write_failed(file, "write the file");
}

bool out_file_check(Diag *diag, const char *path) {
  OutFile *file = ARENA_NEW(diag->arena, OutFile);
  if (!out_file_open(file, diag, path)) return false;
  out_file_abandon(file);
  return true;
}

// ---- writing ----

static void flush(OutFile *file) {
  const unsigned char *from = file->buffer;
  while (file->n_buffered && !file->failed) {
    ssize_t n = write(file->fd, from, file->n_buffered);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = EIO;
    if (n <= 0) {
      write_failed(file, "write the file");
      return;
    }
    from += n;
    file->n_buffered -= (size_t)n;
  }
}

void out_file_write(OutFile *file, const void *bytes, size_t size) {
  const unsigned char *from = bytes;
  while (size && !file->failed) {
    size_t room = sizeof file->buffer - file->n_buffered;
    size_t n = size < room ? size : room;
    memcpy(file->buffer + file->n_buffered, from, n);
    file->n_buffered += n;
    from += n;
    size -= n;
    if (file->n_buffered == sizeof file->buffer) flush(file);
  }
}

// ---- naming it ----

/* umask can only be read by setting it. */
static mode_t mode_for(const OutFile *file) {
  struct stat status;
  if (file->permissions) return (mode_t)file->permissions;
  if (stat(file->target, &status) == 0) return status.st_mode & 07777;
  mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

/* A nameless file cannot replace an existing one: linkat refuses a name that is taken. So it first gets a hidden name,
 * and rename, which does replace, moves it over the target. */
static bool name_it(OutFile *file) {
  char proc[64];
  snprintf(proc, sizeof proc, "/proc/self/fd/%d", file->fd);
  for (unsigned attempt = 0; attempt < 100 && !file->temporary; attempt++) {
    const char *name = temporary_name(file, attempt);
    if (linkat(AT_FDCWD, proc, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0) file->temporary = name;
    else if (errno != EEXIST) return false;
  }
  return file->temporary != NULL;
}

static void sync_folder(const OutFile *file) {
  int fd = open(file->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd); /* the file is complete even if this fails; only its name might be lost in a crash */
  close(fd);
}

/* The order makes the result durable: the contents reach the disk (fsync) before the name does (rename, then fsync of
 * the folder). After a crash the target is either the old file or the whole new one. */
bool out_file_commit(OutFile *file) {
  if (!file->failed) flush(file);
  if (!file->failed && is_null_device(file->target)) {
    out_file_abandon(file); /* nothing to name */
    return true;
  }
  if (!file->failed && fchmod(file->fd, mode_for(file)) != 0) write_failed(file, "set the permissions of the file");
  if (!file->failed && fsync(file->fd) != 0) write_failed(file, "write the file");
  if (!file->failed && !name_it(file)) write_failed(file, "name the file");
  if (!file->failed && rename(file->temporary, file->target) != 0) write_failed(file, "rename the file");
  if (file->failed) {
    out_file_abandon(file);
    return false;
  }
  file->temporary = NULL;
  if (close(file->fd) != 0) write_failed(file, "close the file");
  file->fd = -1;
  sync_folder(file);
  return !file->failed;
}

void out_file_abandon(OutFile *file) {
  if (file->fd >= 0) close(file->fd);
  if (file->temporary) unlink(file->temporary);
  file->fd = -1;
  file->temporary = NULL;
}

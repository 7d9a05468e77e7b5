#define _GNU_SOURCE /* secure_getenv, mkostemp */

/* Copies of the standard files in the folder of caches. See standard_copies.h.
 *
 * A copy is written under another name and renamed, so that it is complete wherever it is seen. */
#include "lsp/standard_copies.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "elaborate/elaborate.h"

static const char *caches(Arena *arena) {
  const char *chosen = secure_getenv("TFM_CACHE_DIR"), *folder = secure_getenv("XDG_CACHE_HOME"),
             *home = secure_getenv("HOME");
  if (chosen && *chosen == '/') return chosen;
  if (folder && *folder == '/') return arena_printf(arena, "%s/tfmc", folder);
  return home && *home == '/' ? arena_printf(arena, "%s/.cache/tfmc", home) : NULL;
}

static void make_folders(Arena *arena, const char *folder) {
  char *path = arena_strdup(arena, folder);
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    mkdir(path, 0700);
    *slash = '/';
  }
  mkdir(path, 0700);
}

static bool write_copy(Arena *arena, const char *path, const StandardFile *file) {
  char *temporary = arena_printf(arena, "%s.XXXXXX", path);
  const int fd = mkostemp(temporary, O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = write(fd, file->text, file->size) == (ssize_t)file->size && fchmod(fd, 0444) == 0;
  if (close(fd) == 0 && written && rename(temporary, path) == 0) return true;
  unlink(temporary);
  return false;
}

/* "<std/losses>" is losses.tfm in a folder that is called by the text. */
static const char *copy_of(Arena *arena, const StandardFile *file) {
  const char *folder = caches(arena);
  if (!folder) return NULL;
  const char *slash = strchr(file->name, '/'), *name = slash ? slash + 1 : file->name + 1;
  const unsigned long long hash = hash_bytes(HASH_BEGIN, file->text, file->size);
  folder = arena_printf(arena, "%s/standard/%016llx", folder, hash);
  const char *path = arena_printf(arena, "%s/%.*s.tfm", folder, (int)strlen(name) - 1, name);
  struct stat status;
  if (stat(path, &status) == 0 && status.st_size == (off_t)file->size) return path;
  make_folders(arena, folder);
  return write_copy(arena, path, file) ? path : NULL;
}

const char *standard_copy(Arena *arena, const char *name) {
  for (uint32_t i = 0; i < N_STANDARD_FILES; i++) {
    const StandardFile file = standard_file(i);
    if (strcmp(file.name, name) == 0) return copy_of(arena, &file);
  }
  return NULL;
}

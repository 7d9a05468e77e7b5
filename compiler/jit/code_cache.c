#define _GNU_SOURCE /* secure_getenv */
/* In: kernels of plans, objects that were made for them. Out: entries of the folder of generated code (code_cache.h).
 *
 * An entry is written under no name and renamed when it is complete (weights/files.h), so a reader finds a whole entry
 * or none, without locks. Two processes that generate the same code both write it; the last rename wins, and both
 * files have the same bytes. Readers work on an open file, which stays as it was when another process removes or
 * replaces its name. Refused: folders and files that others may write to. */
#include "jit/code_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <llvm-c/Core.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/whole_io.h"
#include "weights/files.h"

extern const char code_identity[]; /* made by cmake/identity.cmake */

static const char entry_ending[] = ".tfmo", entry_magic[8] = "TFMCODE1";
enum { NAME_LENGTH = 2 * sizeof(CacheKey) + sizeof entry_ending - 1 };

typedef struct Footer { /* the end of an entry, after the object */
  char magic[8];
  uint64_t object_bytes;
  CacheKey key;
  unsigned char hash[16]; /* of the object and what stands above */
} Footer;

// ---- the folder ----

/* secure_getenv: a process with raised privileges must not take a folder from the user's environment. XDG asks for
 * relative paths to be ignored. */
const char *cache_default_folder(Arena *arena) {
  const char *chosen = secure_getenv("TFM_CACHE_DIR"), *caches = secure_getenv("XDG_CACHE_HOME"),
             *home = secure_getenv("HOME");
  if (chosen) return *chosen ? chosen : NULL;
  if (caches && *caches == '/') return arena_printf(arena, "%s/tfmc", caches);
  return home && *home == '/' ? arena_printf(arena, "%s/.cache/tfmc", home) : NULL;
}

/* Makes the folder and its parent, no more: a mistyped path should not become a tree. Failure shows when the caller
 * looks at the folder again. */
static void make_folder(Arena *arena, const char *folder) {
  char *path = arena_strdup(arena, folder), *slash = strrchr(path, '/');
  if (slash && slash != path) {
    *slash = 0;
    mkdir(path, 0700);
    *slash = '/';
  }
  mkdir(path, 0700);
}

/* Whether it belongs to this user and nobody else may change it. What an entry holds is executed. */
static bool is_private(const struct stat *status) {
  return status->st_uid == geteuid() && !(status->st_mode & (S_IWGRP | S_IWOTH));
}

const CodeCache *cache_open(Arena *arena, const char *folder, uint64_t most_bytes) {
  struct stat status;
  if (!folder) return NULL;
  if (stat(folder, &status) != 0 && errno == ENOENT) make_folder(arena, folder);
  if (stat(folder, &status) != 0 || !S_ISDIR(status.st_mode) || !is_private(&status)) return NULL;
  CodeCache *cache = ARENA_NEW(arena, CodeCache);
  *cache = (CodeCache){folder, most_bytes};
  return cache;
}

const CodeCache *cache_of_user(Arena *arena) {
  return cache_open(arena, cache_default_folder(arena), CACHE_MOST_BYTES);
}

static const char *entry_path(Arena *arena, const CodeCache *cache, const CacheKey *key) {
  StrBuf path = strbuf_new(arena);
  strbuf_printf(&path, "%s/", cache->folder);
  for (size_t i = 0; i < sizeof key->bytes; i++) strbuf_printf(&path, "%02x", key->bytes[i]);
  strbuf_add(&path, entry_ending);
  return path.text;
}

// ---- keys ----

/* code_identity is a hash of the sources that decide code, so a changed emitter never meets an old entry. The
 * specification says everything else (kernel_spec_print). */
CacheKey cache_key(const Plan *plan) {
  Arena *scratch = arena_create();
  StrBuf text = strbuf_new(scratch);
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  const TargetInfo *target = plan->target;
  strbuf_printf(&text, "%s\nLLVM %u.%u.%u\n", code_identity, major, minor, patch);
  strbuf_printf(&text, "%s %s %s ", target->name, target_family(target)->llvm_triple, target->llvm_cpu);
  target_llvm_features(target, &text);
  strbuf_add_char(&text, '\n');
  for (size_t i = 0; i < plan->kernels.n; i++) {
    strbuf_printf(&text, "%s ", plan->kernels.items[i].name);
    kernel_spec_print(&text, &plan->kernels.items[i].spec);
  }
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(text.text, text.length));
  CacheKey key;
  memcpy(key.bytes, canonical.digest, sizeof key.bytes);
  arena_destroy(scratch);
  return key;
}

// ---- entries ----

/* The hash covers the key too, so an entry that was renamed is not taken for another. */
static Footer footer_of(const CacheKey *key, const char *object, size_t size) {
  Footer footer = {.object_bytes = size, .key = *key};
  memcpy(footer.magic, entry_magic, sizeof footer.magic);
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, object, size);
  XXH3_128bits_update(&state, &footer, offsetof(Footer, hash));
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
  memcpy(footer.hash, canonical.digest, sizeof footer.hash);
  return footer;
}

/* Returns the object of an open entry if the entry is whole, else NULL. The checks are made on the open file and not
 * on its name, which may change meanwhile. */
static const char *read_entry(Arena *arena, int fd, const CacheKey *key, uint64_t most_bytes, size_t *size) {
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || !is_private(&status)) return NULL;
  size_t bytes = (size_t)status.st_size;
  if (bytes <= sizeof(Footer) || bytes > most_bytes) return NULL;
  char *object = arena_alloc(arena, bytes);
  if (!read_all(fd, object, bytes)) return NULL;
  *size = bytes - sizeof(Footer);
  Footer expected = footer_of(key, object, *size);
  return memcmp(object + *size, &expected, sizeof expected) == 0 ? object : NULL;
}

/* O_NOFOLLOW and O_NONBLOCK: a link or a pipe of that name must not lead elsewhere or wait. */
const char *cache_read(Arena *arena, const CodeCache *cache, const CacheKey *key, size_t *size) {
  int fd = open(entry_path(arena, cache, key), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return NULL;
  const char *object = read_entry(arena, fd, key, cache->most_bytes, size);
  if (object) futimens(fd, (struct timespec[2]){{0, UTIME_NOW}, {0, UTIME_NOW}}); /* when it was used last */
  close(fd);
  return object;
}

// ---- removing what was not used for longest ----

typedef struct Entry {
  char name[NAME_LENGTH + 1];
  uint64_t bytes;
  struct timespec used;
} Entry;

typedef VEC(Entry) Entries;

static int by_use(const void *a, const void *b) {
  const Entry *x = a, *y = b;
  if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
  if (x->used.tv_nsec != y->used.tv_nsec) return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* Only names that this program makes are entries; anything else in the folder is left alone. */
static uint64_t list_entries(Arena *arena, DIR *folder, Entries *entries) {
  uint64_t total = 0;
  for (const struct dirent *found; (found = readdir(folder));) {
    struct stat status;
    if (strlen(found->d_name) != NAME_LENGTH ||
        strcmp(found->d_name + NAME_LENGTH - sizeof entry_ending + 1, entry_ending) != 0 ||
        fstatat(dirfd(folder), found->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    Entry entry = {.bytes = (uint64_t)status.st_size, .used = status.st_mtim};
    memcpy(entry.name, found->d_name, NAME_LENGTH + 1);
    vec_push(arena, entries, entry);
    total += entry.bytes;
  }
  return total;
}

/* Removes entries in the order of their last use until the rest fits. It does no harm if another process removes an
 * entry first or is reading one. */
void cache_limit(const CodeCache *cache) {
  DIR *folder = opendir(cache->folder);
  if (!folder) return;
  Arena *scratch = arena_create();
  Entries entries = {0};
  uint64_t total = list_entries(scratch, folder, &entries);
  if (entries.n) qsort(entries.items, entries.n, sizeof *entries.items, by_use);
  for (size_t i = 0; i < entries.n && total > cache->most_bytes; i++) {
    unlinkat(dirfd(folder), entries.items[i].name, 0);
    total -= entries.items[i].bytes;
  }
  arena_destroy(scratch);
  closedir(folder);
}

/* Errors go to a Diag that nobody hears: a cache that cannot be written must not fail a run. */
void cache_write(const CodeCache *cache, const CacheKey *key, const char *object, size_t size) {
  if (size + sizeof(Footer) > cache->most_bytes) return;
  Arena *scratch = arena_create();
  Diag unheard = diag_new(scratch);
  OutFile *file = ARENA_NEW(scratch, OutFile);
  if (out_file_open(file, &unheard, entry_path(scratch, cache, key))) {
    Footer footer = footer_of(key, object, size);
    file->permissions = S_IRUSR | S_IWUSR;
    out_file_write(file, object, size);
    out_file_write(file, &footer, sizeof footer);
    out_file_commit(file);
  }
  arena_destroy(scratch);
}

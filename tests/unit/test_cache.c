/* The cache of generated code: what is kept, what is refused, what is removed. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/temporary.h"
#include "codegen/codegen.h"
#include "jit/jit.h"
#include "jit/kernel_objects.h"

enum { PROCESSES = 32 };

typedef struct Fixture {
  Arena *arena;
  Diag diag;
  Plan plan;
  char root[TEMPORARY_BYTES];
  const char *folder;
} Fixture;

static Fixture fixture_new(int64_t a_stride) {
  Arena *arena = arena_create();
  Fixture f = {.arena = arena, .diag = diag_new(arena)};
  cr_assert(mkdtemp(temporary_name(f.root, "tfm-cache")));
  f.folder = arena_printf(arena, "%s/one/two", f.root);
  f.plan = (Plan){.arena = arena, .target = target_find("x86-64")};
  KernelSpec tile = {.family = KERNEL_TILE, .rows = 2, .width = 8, .a_stride = a_stride, .b_stride = 8};
  PlannedKernel kernels[] = {{.spec = tile, .name = "product"}, {.spec = tile, .name = "higher"}}; /* one entry */
  kernels[1].spec.rows = 3;
  for (size_t i = 0; i < 2; i++) vec_push(arena, &f.plan.kernels, kernels[i]);
  return f;
}

static void add_kernel(Fixture *f, KernelSpec spec, const char *name) {
  vec_push(f->arena, &f->plan.kernels, ((PlannedKernel){.spec = spec, .name = name}));
}

static void fixture_free(Fixture *f) {
  char command[TEMPORARY_BYTES + 16];
  snprintf(command, sizeof command, "rm -rf '%s'", f->root);
  cr_assert_eq(system(command), 0);
  arena_destroy(f->arena);
}

static const CodeCache *open_cache(Fixture *f) { return cache_open(f->arena, f->folder, CACHE_MOST_BYTES); }

/* 2 x 3 times 3 x 8 by the code of the plan. */
static void check_code(Fixture *f, const CodeCache *cache) {
  Jit *jit = jit_create(f->arena, &f->diag, &f->plan, cache, NULL);
  cr_assert(jit);
  float a[2 * 32] = {0}, b[3 * 8], c[16];
  for (int i = 0; i < 24; i++) b[i] = (float)i;
  for (int i = 0; i < 3; i++) a[i] = 1;
  tfm_tile_kernel product;
  memcpy(&product, &jit_program(jit)->kernels[0], sizeof product);
  product(a, b, c, 8, 3, 0, 8, b, 0);
  for (int i = 0; i < 8; i++) cr_expect_eq(c[i], (float)(24 + 3 * i));
  jit_destroy(jit);
}

/* How many files the folder has; the path of one of them. */
static int files(Fixture *f, char path[512]) {
  int n = 0;
  DIR *folder = opendir(f->folder);
  cr_assert(folder);
  for (struct dirent *found; (found = readdir(folder));) {
    if (found->d_name[0] == '.' && strspn(found->d_name, ".") == strlen(found->d_name)) continue;
    snprintf(path, 512, "%s/%s", f->folder, found->d_name);
    n++;
  }
  closedir(folder);
  return n;
}

static char *contents(Arena *arena, const char *path, size_t *size) {
  struct stat status;
  FILE *file = fopen(path, "rb");
  cr_assert(file && fstat(fileno(file), &status) == 0);
  *size = (size_t)status.st_size;
  char *bytes = arena_alloc(arena, *size + 1);
  cr_assert_eq(fread(bytes, 1, *size, file), *size);
  fclose(file);
  return bytes;
}

static void put(const char *path, const char *bytes, size_t size) {
  FILE *file = fopen(path, "wb");
  cr_assert(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

Test(cache, code_is_found_again) {
  Fixture f = fixture_new(16);
  const CodeCache *cache = open_cache(&f);
  char path[512];
  struct stat first, second;
  cr_assert(cache);
  check_code(&f, cache);
  cr_assert_eq(files(&f, path), 1);
  cr_assert_eq(stat(path, &first), 0);
  cr_expect_eq(first.st_mode & 07777, 0600u);
  check_code(&f, cache);
  cr_assert_eq(files(&f, path), 1);
  cr_assert_eq(stat(path, &second), 0);
  cr_expect_eq(first.st_ino, second.st_ino, "it was written again");
  fixture_free(&f);
}

/* Tiles that differ in their rows alone are one entry, everything else has its own: what two programs have in common is
 * made once. */
Test(cache, programs_share_what_is_equal) {
  Fixture f = fixture_new(16);
  const CodeCache *cache = open_cache(&f);
  char path[512];
  check_code(&f, cache);
  cr_assert_eq(files(&f, path), 1);
  add_kernel(&f, (KernelSpec){.family = KERNEL_SOFTMAX}, "softmax");
  check_code(&f, cache);
  cr_assert_eq(files(&f, path), 2);
  KernelSpec other = f.plan.kernels.items[0].spec;
  other.a_stride = 24;
  add_kernel(&f, other, "of_another_width");
  other.rows = 5;
  add_kernel(&f, other, "of_another_width_5");
  check_code(&f, cache);
  cr_assert_eq(files(&f, path), 3);
  f.plan.kernels.n = 1; /* other heights than before */
  check_code(&f, cache);
  cr_assert_eq(files(&f, path), 4);
  fixture_free(&f);
}

Test(cache, other_kernels_and_targets_have_other_keys) {
  Fixture f = fixture_new(16), g = fixture_new(32);
  CacheKey one = cache_key(&f.plan), other = cache_key(&g.plan);
  cr_expect_neq(memcmp(&one, &other, sizeof one), 0);
  for (size_t i = 0; i < g.plan.kernels.n; i++) g.plan.kernels.items[i].spec.a_stride = 16;
  other = cache_key(&g.plan);
  cr_expect_eq(memcmp(&one, &other, sizeof one), 0);
  g.plan.target = target_find("x86-64-v3");
  other = cache_key(&g.plan);
  cr_expect_neq(memcmp(&one, &other, sizeof one), 0);
  fixture_free(&f);
  fixture_free(&g);
}

/* Each change makes the entry invalid, and the next user replaces it by what it was. */
Test(cache, damaged_entries_are_made_again) {
  Fixture f = fixture_new(16);
  const CodeCache *cache = open_cache(&f);
  CacheKey key = cache_key(&f.plan);
  char path[512];
  size_t size, found, again;
  check_code(&f, cache);
  cr_assert_eq(files(&f, path), 1);
  char *good = contents(f.arena, path, &size), *bad = arena_alloc(f.arena, size + 1);
  for (size_t i = 0; i < size; i += size / 60) {
    memcpy(bad, good, size);
    bad[i] ^= 4;
    put(path, bad, size);
    cr_expect_null(cache_read(f.arena, cache, &key, &found), "byte %zu", i);
    put(path, good, i);
    cr_expect_null(cache_read(f.arena, cache, &key, &found), "cut to %zu", i);
  }
  for (size_t i = size - 48; i < size; i++) { /* magic, length, key, hash */
    memcpy(bad, good, size);
    bad[i] ^= 1;
    put(path, bad, size);
    cr_expect_null(cache_read(f.arena, cache, &key, &found), "byte %zu", i);
  }
  put(path, good, size + 1);
  cr_expect_null(cache_read(f.arena, cache, &key, &found), "one byte more");
  check_code(&f, cache);
  char *now = contents(f.arena, path, &again);
  cr_expect(again == size && memcmp(now, good, size) == 0);
  fixture_free(&f);
}

/* The entry of other kernels under this name, as after a change of the format of names. */
Test(cache, entries_of_another_key_are_refused) {
  Fixture f = fixture_new(16), g = fixture_new(32);
  const CodeCache *cache = open_cache(&f);
  CacheKey key = cache_key(&g.plan);
  char path[512], other[1024];
  size_t size;
  check_code(&f, cache);
  files(&f, path);
  char *bytes = contents(f.arena, path, &size);
  snprintf(other, sizeof other, "%s/", f.folder);
  for (int i = 0; i < 16; i++) sprintf(other + strlen(other), "%02x", key.bytes[i]);
  strcat(other, ".tfmo");
  put(other, bytes, size);
  cr_expect_null(cache_read(f.arena, cache, &key, &size));
  fixture_free(&f);
  fixture_free(&g);
}

Test(cache, folders_that_others_may_write_to_are_refused) {
  Fixture f = fixture_new(16);
  cr_assert(open_cache(&f));
  for (mode_t mode = 0702; mode <= 0720; mode += 0720 - 0702) {
    cr_assert_eq(chmod(f.folder, mode), 0);
    cr_expect_null(open_cache(&f), "mode %o", mode);
  }
  cr_assert_eq(chmod(f.folder, 0700), 0);
  cr_expect(open_cache(&f));
  if (geteuid() == 0) {
    cr_assert_eq(chown(f.folder, 12345, (gid_t)-1), 0);
    cr_expect_null(open_cache(&f), "it belongs to somebody else");
  }
  cr_expect_null(cache_open(f.arena, "/dev/null", 1000));
  cr_expect_null(cache_open(f.arena, "/proc/no/such", 1000));
  fixture_free(&f);
}

Test(cache, entries_that_others_may_write_to_are_refused) {
  Fixture f = fixture_new(16);
  const CodeCache *cache = open_cache(&f);
  CacheKey key = cache_key(&f.plan);
  char path[512], elsewhere[600];
  size_t size;
  check_code(&f, cache);
  files(&f, path);
  cr_assert(cache_read(f.arena, cache, &key, &size));
  cr_assert_eq(chmod(path, 0620), 0);
  cr_expect_null(cache_read(f.arena, cache, &key, &size));
  cr_assert_eq(chmod(path, 0600), 0);
  snprintf(elsewhere, sizeof elsewhere, "%s/entry", f.root);
  cr_assert_eq(rename(path, elsewhere), 0);
  cr_assert_eq(symlink(elsewhere, path), 0);
  cr_expect_null(cache_read(f.arena, cache, &key, &size), "a symbolic link");
  cr_assert_eq(unlink(path), 0);
  cr_assert_eq(mkfifo(path, 0600), 0);
  cr_expect_null(cache_read(f.arena, cache, &key, &size), "a pipe");
  fixture_free(&f);
}

Test(cache, a_folder_that_cannot_be_written_does_no_harm) {
  Fixture f = fixture_new(16);
  const CodeCache *cache = open_cache(&f);
  char path[512];
  cr_assert_eq(chmod(f.folder, 0500), 0);
  if (geteuid() == 0) cr_assert_eq(rmdir(f.folder), 0); /* root writes everywhere, but not where nothing is */
  check_code(&f, cache);
  if (geteuid() != 0) {
    cr_expect(open_cache(&f));
    cr_expect_eq(files(&f, path), 0);
    cr_assert_eq(chmod(f.folder, 0700), 0);
  }
  check_code(&f, NULL);
  cr_expect_eq(f.diag.messages.n, 0);
  fixture_free(&f);
}

Test(cache, those_not_used_for_longest_are_removed) {
  Fixture f = fixture_new(16);
  const CodeCache *cache = cache_open(f.arena, f.folder, 1000);
  char object[300], path[512];
  memset(object, 7, sizeof object);
  for (unsigned char i = 0; i < 5; i++) {
    CacheKey key = {{i}}, first = {{0}};
    size_t size;
    cache_write(cache, &key, object, sizeof object);
    cache_limit(cache);
    usleep(20 * 1000);
    cr_expect(cache_read(f.arena, cache, &first, &size), "used between all others: %d", i);
    usleep(20 * 1000);
  }
  cr_expect_eq(files(&f, path), 2);
  for (unsigned char i = 0; i < 5; i++) {
    size_t size;
    cr_expect_eq(cache_read(f.arena, cache, &(CacheKey){{i}}, &size) != NULL, i == 0 || i == 4, "%d", i);
  }
  char large[1000] = {0};
  cache_write(cache, &(CacheKey){{9}}, large, sizeof large);
  cache_limit(cache);
  cr_expect_eq(files(&f, path), 2, "what is larger than the cache is not kept");
  fixture_free(&f);
}

Test(cache, many_processes_write_one_file) {
  Fixture f = fixture_new(16);
  char path[512];
  size_t size, found;
  for (int i = 0; i < PROCESSES; i++) {
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
      Jit *jit = jit_create(f.arena, &f.diag, &f.plan, open_cache(&f), NULL);
      _exit(!jit);
    }
  }
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    cr_assert(wait(&status) > 0);
    cr_expect_eq(status, 0);
  }
  cr_assert_eq(files(&f, path), 1);
  char *written = contents(f.arena, path, &size);
  CacheKey key = cache_key(&f.plan);
  const char *object = cache_read(f.arena, open_cache(&f), &key, &found);
  cr_assert(object);
  cr_assert_eq(unlink(path), 0);
  check_code(&f, open_cache(&f));
  char *alone = contents(f.arena, path, &found);
  cr_expect(size == found && memcmp(written, alone, size) == 0);
  fixture_free(&f);
}

static BytesList objects_of(Fixture *f, const char *threads, const CodeCache *cache) {
  setenv("TFM_NUM_THREADS", threads, 1);
  const BytesList objects = kernel_objects(f->arena, &f->diag, &f->plan, cache);
  unsetenv("TFM_NUM_THREADS");
  cr_assert(objects.items);
  return objects;
}

/* Whichever thread makes a part, it is in its place, with its bytes, and in the cache. */
Test(cache, threads_make_the_same_objects) {
  enum { KERNELS = 24 };
  Fixture f = fixture_new(16);
  char path[512];
  f.plan.kernels.n = 0;
  for (int i = 0; i < KERNELS; i++)
    add_kernel(&f, (KernelSpec){.family = KERNEL_TILE, .rows = 1, .width = 8, .a_stride = 8 + 8 * i, .b_stride = 8},
               arena_printf(f.arena, "product_%d", i));
  const BytesList wanted = objects_of(&f, "1", NULL);
  const BytesList found[] = {objects_of(&f, "4", NULL), objects_of(&f, "5", open_cache(&f)),
                             objects_of(&f, "3", open_cache(&f))};
  cr_assert_eq(wanted.n, KERNELS);
  cr_expect_eq(files(&f, path), KERNELS);
  for (size_t way = 0; way < 3; way++) {
    cr_assert_eq(found[way].n, KERNELS);
    for (size_t i = 0; i < KERNELS; i++) {
      const Bytes *a = &wanted.items[i], *b = &found[way].items[i];
      cr_expect(a->size == b->size && memcmp(a->data, b->data, a->size) == 0, "way %zu, part %zu", way, i);
    }
  }
  fixture_free(&f);
}

static const char *folder_with(Arena *arena, const char *chosen, const char *caches, const char *home) {
  const char *names[] = {"TFM_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}, *values[] = {chosen, caches, home};
  for (int i = 0; i < 3; i++)
    if (values[i]) setenv(names[i], values[i], 1);
    else unsetenv(names[i]);
  const char *folder = cache_default_folder(arena);
  return folder ? folder : "none";
}

Test(cache, where_it_is) {
  Arena *arena = arena_create();
  cr_expect_str_eq(folder_with(arena, "/a", "/b", "/c"), "/a");
  cr_expect_str_eq(folder_with(arena, "a", "/b", "/c"), "a");
  cr_expect_str_eq(folder_with(arena, "", "/b", "/c"), "none");
  cr_expect_str_eq(folder_with(arena, NULL, "/b", "/c"), "/b/tfmc");
  cr_expect_str_eq(folder_with(arena, NULL, "b", "/c"), "/c/.cache/tfmc");
  cr_expect_str_eq(folder_with(arena, NULL, NULL, "/c"), "/c/.cache/tfmc");
  cr_expect_str_eq(folder_with(arena, NULL, "", ""), "none");
  cr_expect_str_eq(folder_with(arena, NULL, NULL, NULL), "none");
  arena_destroy(arena);
}

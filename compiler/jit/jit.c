#define _GNU_SOURCE /* secure_getenv, dl_iterate_phdr, madvise */
/* In: plans. Out: entries of the folder of generated code (cache.h); kernels in executable memory, by way of one object
 * file (jit.h).
 *
 * An entry is written under no name and renamed when it is complete (weights/files.h), so a reader finds a whole entry
 * or none, without locks. Two processes that generate the same code both write it; the last rename wins, and both
 * files have the same bytes. Readers work on an open file, which stays as it was when another process removes or
 * replaces its name.
 *
 * ORC's memory manager writes all pages and then makes them executable and read-only, before the first address is
 * handed out. Refused: code that this CPU cannot run. */
#include "jit/jit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <llvm-c/Core.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Object.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/codegen.h"
#include "jit/cache.h"
#include "kernels/kernels.h"
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
  strbuf_printf(&text, "%s %s %s %s\n", target->name, target->llvm_triple, target->llvm_cpu, target->llvm_features);
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

static bool read_whole(int fd, char *bytes, size_t size) {
  while (size) {
    ssize_t n = read(fd, bytes, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    size -= (size_t)n;
  }
  return true;
}

/* Returns the object of an open entry if the entry is whole, else NULL. The checks are made on the open file and not
 * on its name, which may change meanwhile. */
static const char *read_entry(Arena *arena, int fd, const CacheKey *key, uint64_t most_bytes, size_t *size) {
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || !is_private(&status)) return NULL;
  size_t bytes = (size_t)status.st_size;
  if (bytes <= sizeof(Footer) || bytes > most_bytes) return NULL;
  char *object = arena_alloc(arena, bytes);
  if (!read_whole(fd, object, bytes)) return NULL;
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
static void remove_oldest(Arena *arena, const CodeCache *cache) {
  DIR *folder = opendir(cache->folder);
  if (!folder) return;
  Entries entries = {0};
  uint64_t total = list_entries(arena, folder, &entries);
  if (entries.n) qsort(entries.items, entries.n, sizeof *entries.items, by_use);
  for (size_t i = 0; i < entries.n && total > cache->most_bytes; i++) {
    unlinkat(dirfd(folder), entries.items[i].name, 0);
    total -= entries.items[i].bytes;
  }
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
    if (out_file_commit(file)) remove_oldest(scratch, cache);
  }
  arena_destroy(scratch);
}

struct Jit {
  LLVMOrcLLJITRef lljit;
  tfm_program program;
};

/* Reports and frees an error of LLVM; true if there was one. */
static bool failed(Diag *diag, LLVMErrorRef error) {
  if (!error) return false;
  char *message = LLVMGetErrorMessage(error);
  diag_error_at(diag, NULL, DIAG_TOOL, "LLVM's JIT: %s", message);
  LLVMDisposeErrorMessage(message);
  return true;
}

/* CPU time and not elapsed time, so that a busy machine does not show in statistics. */
static double thread_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Each module has a context of its own, which goes with it: nothing is shared between plans. */
static LLVMMemoryBufferRef generate(Diag *diag, const Plan *plan, LLVMTargetMachineRef machine) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = kernels_module(context, plan);
  LLVMMemoryBufferRef object = emit_object(diag, module, machine, false);
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  return object;
}

/* A cached object is loaded exactly as a new one is, so nothing depends on where it came from. */
static LLVMMemoryBufferRef generate_cached(Diag *diag, const Plan *plan, LLVMTargetMachineRef machine,
                                           const CodeCache *cache) {
  if (!cache) return generate(diag, plan, machine);
  Arena *scratch = arena_create();
  CacheKey key = cache_key(plan);
  size_t size;
  const char *known = cache_read(scratch, cache, &key, &size);
  LLVMMemoryBufferRef object = known ? LLVMCreateMemoryBufferWithMemoryRangeCopy(known, size, "cached") : NULL;
  arena_destroy(scratch);
  if (object) return object;
  object = generate(diag, plan, machine);
  if (object) cache_write(cache, &key, LLVMGetBufferStart(object), LLVMGetBufferSize(object));
  return object;
}

/* Creating the target machine registers the back end, which loading a cached object needs too. */
static LLVMMemoryBufferRef find_object(Diag *diag, const Plan *plan, const CodeCache *cache) {
  LLVMTargetMachineRef machine = target_machine(diag, plan->target);
  if (!machine) return NULL;
  LLVMMemoryBufferRef object = generate_cached(diag, plan, machine, cache);
  LLVMDisposeTargetMachine(machine);
  return object;
}

/* Sums the sizes of all sections of instructions. */
static uint64_t code_bytes(LLVMMemoryBufferRef object) {
  uint64_t bytes = 0;
  char *message = NULL;
  LLVMContextRef context = LLVMContextCreate();
  LLVMBinaryRef binary = LLVMCreateBinary(object, context, &message);
  if (binary) {
    LLVMSectionIteratorRef section = LLVMObjectFileCopySectionIterator(binary);
    for (; !LLVMObjectFileIsSectionIteratorAtEnd(binary, section); LLVMMoveToNextSection(section)) {
      const char *name = LLVMGetSectionName(section);
      if (name && strncmp(name, ".text", 5) == 0) bytes += LLVMGetSectionSize(section);
    }
    LLVMDisposeSectionIterator(section);
    LLVMDisposeBinary(binary);
  }
  LLVMDisposeMessage(message);
  LLVMContextDispose(context);
  return bytes;
}

/* The first lookup links the object; its pages are executable and read-only from then on. */
static bool look_up(Arena *arena, Diag *diag, const Plan *plan, Jit *jit) {
  void **addresses = ARENA_ARRAY(arena, void *, plan->kernels.n);
  for (size_t i = 0; i < plan->kernels.n; i++) {
    LLVMOrcExecutorAddress address = 0;
    if (failed(diag, LLVMOrcLLJITLookup(jit->lljit, &address, plan->kernels.items[i].name))) return false;
    addresses[i] = (void *)(uintptr_t)address;
  }
  jit->program = plan->program;
  jit->program.kernels = addresses;
  jit->program.n_kernels = (uint32_t)plan->kernels.n;
  const char *whole = plan_whole_attention(plan);
  if (plan->program.n_row_chains) jit->program.chain_functions = tfm_chain_functions;
  if (plan_has_attention_grad(plan)) jit->program.attention_grad = tfm_attention_grad;
  if (plan_has_gradient_sums(plan)) jit->program.gradient_sums = tfm_gradient_sums;
  if (whole) jit->program.whole_attention = strstr(whole, "pages") ? tfm_whole_pages : tfm_whole_attention;
  return true;
}

/* The object belongs to LLJIT once it has been handed over, even if that fails; before, it must be disposed of here. */
static bool load(Arena *arena, Diag *diag, const Plan *plan, LLVMMemoryBufferRef object, Jit *jit) {
  if (failed(diag, LLVMOrcCreateLLJIT(&jit->lljit, NULL))) {
    LLVMDisposeMemoryBuffer(object);
    return false;
  }
  LLVMOrcJITDylibRef dylib = LLVMOrcLLJITGetMainJITDylib(jit->lljit);
  if (failed(diag, LLVMOrcLLJITAddObjectFile(jit->lljit, dylib, object))) return false;
  return look_up(arena, diag, plan, jit);
}

Jit *jit_create(Arena *arena, Diag *diag, const Plan *plan, JitStatistics *statistics) {
  return jit_create_cached(arena, diag, plan, NULL, statistics);
}

Jit *jit_create_cached(Arena *arena, Diag *diag, const Plan *plan, const CodeCache *cache, JitStatistics *statistics) {
  const char *lacks = host_lacks(plan->target);
  if (lacks) {
    diag_error_at(diag, NULL, DIAG_CPU, "this CPU cannot run %s code: it lacks %s", plan->target->name, lacks);
    return NULL;
  }
  double begin = thread_seconds();
  LLVMMemoryBufferRef object = find_object(diag, plan, cache);
  if (!object) return NULL;
  uint64_t bytes = statistics ? code_bytes(object) : 0;
  Jit *jit = ARENA_NEW(arena, Jit);
  if (!load(arena, diag, plan, object, jit)) {
    jit_destroy(jit);
    return NULL;
  }
  if (statistics) *statistics = (JitStatistics){thread_seconds() - begin, bytes, (uint32_t)plan->kernels.n};
  return jit;
}

const tfm_program *jit_program(const Jit *jit) { return &jit->program; }

/* Errors of taking code down have no reader and no cure. */
void jit_destroy(Jit *jit) {
  if (!jit || !jit->lljit) return;
  LLVMErrorRef error = LLVMOrcDisposeLLJIT(jit->lljit);
  if (error) LLVMConsumeError(error);
  jit->lljit = NULL;
}

// ---- memory of the compiler ----

/* Whether a segment of the object holds the address. */
static bool is_in_object(const struct dl_phdr_info *object, uintptr_t address) {
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type == PT_LOAD && address - (object->dlpi_addr + segment->p_vaddr) < segment->p_memsz) return true;
  }
  return false;
}

/* Whether the loader wrote into its code: such pages are not those of the file. */
static bool has_changed_text(const struct dl_phdr_info *object) {
  for (int i = 0; i < object->dlpi_phnum; i++) {
    if (object->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; entry++)
      if (entry->d_tag == DT_TEXTREL || (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_TEXTREL))) return true;
  }
  return false;
}

/* Called for each object of the process until it returns 1. */
static int give_back_object(struct dl_phdr_info *object, size_t size, void *context) {
  (void)size;
  const uintptr_t page = *(const uintptr_t *)context;
  if (!is_in_object(object, (uintptr_t)&LLVMContextCreate)) return 0;
  if (has_changed_text(object)) return 1;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W)) continue;
    const uintptr_t start = (object->dlpi_addr + segment->p_vaddr) / page * page;
    const uintptr_t end = object->dlpi_addr + segment->p_vaddr + segment->p_filesz;
    madvise((void *)start, end - start, MADV_DONTNEED);
  }
  return 1;
}

void jit_give_back_memory(void) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  dl_iterate_phdr(give_back_object, &page);
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}
